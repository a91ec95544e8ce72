// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command line of the example programs: numbers with their range, lists of numbers, and one-line errors. All errors are
// UsageErrors that begin with the program's name.
//
//   CLI::App app("What it does.", "program");
//   app.add_option("--steps", steps)->check(command_line::whole(1));
//   if (!command_line::parse(app, argc, argv)) return 0;   // help was requested and printed

#include <CLI/CLI.hpp>
#include <Kokkos_Macros.hpp>
#if defined(KOKKOS_ENABLE_CUDA) && __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/run_options.hpp>
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi/library.hpp>)
#include <weft/comm/mpi/library.hpp>
#define COMMAND_LINE_MPI
#endif
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace command_line {

/// A whole number of [least, most], without silent wrap-around, bases or fractions.
inline CLI::Validator whole(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        const std::size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
        errno = 0;
        char* end = nullptr;
        const long long value = std::strtoll(text.c_str(), &end, 10);
        if (text.find_first_of("0123456789") != sign || *end != '\0') return "'" + text + "' is not a whole number";
        if ((errno == ERANGE && value > 0) || value > most) return text + " is too large, the most is " + std::to_string(most);
        if (errno == ERANGE || value < least) return text + " is too small, the least is " + std::to_string(least);
        return "";
      },
      "N");
}

/// A finite number of [least, most], or of [least, most) where `most` is excluded.
inline CLI::Validator number(double least, double most = std::numeric_limits<double>::max(), bool excluded = false) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0' || !std::isfinite(value)) return "'" + text + "' is not a finite number";
        char range[80];
        if (most == std::numeric_limits<double>::max()) std::snprintf(range, sizeof range, "at least %g", least);
        else std::snprintf(range, sizeof range, "at least %g and %s %g", least, excluded ? "below" : "at most", most);
        return value < least || value > most || (excluded && value == most) ? text + " must be " + range : "";
      },
      "X");
}

/// The whole numbers in [0, most] that a text lists, separated by commas or blanks; only blanks give an empty list. Throws
/// UsageError, which begins with `name` and ends with `rule`, for anything else, including an empty entry as in "1,,2".
inline std::vector<std::int32_t> whole_numbers(std::string_view name, std::string_view text,
                                               std::string_view rule = "whole numbers such as 464,318",
                                               std::int32_t most = std::numeric_limits<std::int32_t>::max()) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::string_view all = text;
  const auto refuse = [&](std::string_view word, const char* why) {
    throw weft::UsageError(weft::detail::joined({name, ": '", weft::detail::shown(word), why, rule}));
  };
  std::vector<std::int32_t> numbers;
  if (text.find_first_not_of(blanks) == text.npos) return numbers;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    more = comma != text.npos;
    std::string_view entry = text.substr(0, comma);
    const std::size_t before = numbers.size();
    for (std::size_t at = 0; (at = entry.find_first_not_of(blanks, at)) != entry.npos;) {
      const std::size_t end = std::min(entry.find_first_of(blanks, at), entry.size());
      const std::string_view word = entry.substr(at, end - at);
      std::int32_t number = -1;
      const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), number);
      if (error != std::errc() || last != word.data() + word.size() || number < 0 || number > most)
        refuse(word, "' is no token: ");
      numbers.push_back(number);
      at = end;
    }
    if (numbers.size() == before) refuse(all, "' has an empty entry: ");
    if (more) text.remove_prefix(comma + 1);
  }
  return numbers;
}

/// The first error in a command line, from left to right.
inline std::string refusal_of(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<const CLI::App*> all{&app};
  for (const CLI::App* command : app.get_subcommands()) all.push_back(command);
  for (const CLI::App* one : all)
    for (const CLI::Option* option : one->get_options())
      if (option->get_expected_max() == 1 && option->count() > 1)
        return option->get_name() + " is given " + std::to_string(option->count()) + " times, it takes one value";
  const std::vector<std::string> left = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || left.empty()) return error.what();
  const auto option = std::find_if(left.begin(), left.end(), [](const std::string& word) { return word.starts_with('-'); });
  return option == left.end() ? "unexpected argument '" + left.front() + "'" : "unknown option '" + *option + "'";
}

/// The answer to --version: the versions of weft, of the compiler, and of the libraries at compile time.
inline std::string version_text(const std::string& program) {
  std::string more;
#ifdef COMMAND_LINE_MPI
  weft::detail::append_to(more, {", ", weft::comm::mpi::library_version()});
#endif
#ifdef NCCL_MAJOR
  weft::detail::append_to(more, {", NCCL ", NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH});
#endif
  return weft::runtime::versions(program, more);
}

/// Reads the command line; returns false if it requested help or the version, which is then printed. Throws UsageError.
inline bool parse(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", version_text(app.get_name()), "Print the versions of weft, compiler and libraries");
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& success) {
    app.exit(success);
    return false;
  } catch (const CLI::ParseError& error) {
    throw weft::UsageError(app.get_name() + ": " + refusal_of(app, error) + " (--help lists the options)");
  }
}

}  // namespace command_line
