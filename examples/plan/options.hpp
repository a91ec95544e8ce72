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

/// Throws if a required option is missing. Called when the command runs, so that an unknown option, perhaps a misspelling of this
/// one, is reported first.
inline void require_option(const CLI::App* command, const std::string& name) {
  if (command->count(name) == 0)
    throw weft::UsageError("plan: " + command->get_name() + " needs " + name + " (--help lists the options)");
}

/// Adds `--name N`; refuses anything except a decimal number of 64 bits. The layout rules check zero and negative numbers.
template <class Target>
CLI::Option* add_count(CLI::App* command, const std::string& name, Target& target, const std::string& description) {
  return command->add_option(name, target, description)->check(command_line::whole(std::numeric_limits<std::int64_t>::min()));
}

}  // namespace plan
