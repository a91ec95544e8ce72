// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole numbers on the command line, without silent wrap-around, bases or fractions.

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace plan {

/// Adds `--name N`; refuses what is not a decimal number of 64 bits. Zero and negative numbers are left to the layout rules.
template <class Target>
CLI::Option* add_count(CLI::App* command, const std::string& name, Target& target, const std::string& description) {
  return command->add_option(name, target, description)->check([](const std::string& text) -> std::string {
    const std::size_t digits = text.find_first_not_of("+-") == std::string::npos ? text.size() : text.find_first_of("0123456789");
    errno = 0;
    char* end = nullptr;
    std::strtoll(text.c_str(), &end, 10);
    if (digits > 1 || text.empty() || *end != '\0') return "'" + text + "' is not a whole number";
    return errno == ERANGE ? "'" + text + "' is too large" : "";
  });
}

}  // namespace plan
