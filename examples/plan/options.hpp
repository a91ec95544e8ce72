// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole numbers on the command line, without silent wrap-around, bases or fractions.

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdlib>
#include <string>

#include <weft/core/error.hpp>

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
  return command->add_option(name, target, description)->check([](const std::string& text) -> std::string {
    const std::size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
    errno = 0;
    char* end = nullptr;
    std::strtoll(text.c_str(), &end, 10);
    if (text.find_first_of("0123456789") != sign || *end != '\0') return "'" + text + "' is not a whole number";
    return errno == ERANGE ? "'" + text + "' is too large" : "";
  });
}

}  // namespace plan
