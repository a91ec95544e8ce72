// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of plan's commands.

#include <CLI/CLI.hpp>

#include <cstdint>
#include <limits>
#include <string>

#include <weft/core/error.hpp>

#include "../command_line.hpp"

namespace plan {

/// Refuses a command without an option that it needs. Asked when it runs, so that an unknown option, perhaps this one misspelt,
/// is named first.
inline void require_option(const CLI::App* command, const std::string& name) {
  if (command->count(name) == 0)
    throw weft::UsageError("plan: " + command->get_name() + " needs " + name + " (--help lists the options)");
}

/// Adds `--name N`; refuses what is not a decimal number of 64 bits. Zero and negative numbers are left to the layout rules.
template <class Target>
CLI::Option* add_count(CLI::App* command, const std::string& name, Target& target, const std::string& description) {
  return command->add_option(name, target, description)->check(command_line::whole(std::numeric_limits<std::int64_t>::min()));
}

}  // namespace plan
