// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/run_options.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/run_options.hpp>
#include <weft/core/inline.hpp>

namespace weft::runtime::detail {

WEFT_COLD WEFT_INLINE std::optional<double> number_from_environment(const char* name, double least, double most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  double value = 0;
  const std::string_view view(text);
  const auto [end, problem] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (problem != std::errc() || end != view.data() + view.size() || !(value >= least && value <= most)) {
    char range[64];
    std::snprintf(range, sizeof range, "from %g to %g", least, most);
    throw_error<UsageError>({"environment variable ", name, " is '", view, "', expected a number ", range});
  }
  return value;
}

WEFT_COLD WEFT_INLINE RunOptions resolve(RunOptions options, int started, int here) {
  if (options.ranks < 0) throw_error<UsageError>({"ranks(", options.ranks, ") must be at least 1"});
  if (started > 0) {
    if (options.ranks > started)
      throw_error<UsageError>({"ranks(", options.ranks, ") > ", started,
                               " started by the launcher: ask it for more (mpirun -np or torchrun --nproc-per-node ",
                               options.ranks, ")"});
    if (options.ranks != 0 && options.ranks < started)
      throw_error<UsageError>({"ranks(", options.ranks, ") < ", started, " started by the launcher: all of them take part"});
    options.ranks = started;
  }
  constexpr int most_ranks = 1024;
  if (options.ranks == 0) {
    const auto wanted = number_from_environment("WEFT_RANKS", 1, most_ranks);
    if (wanted && *wanted != double(int(*wanted)))
      throw_error<UsageError>({"environment variable WEFT_RANKS must be a whole number"});
    options.ranks = wanted ? int(*wanted) : cores();
  }
  if (started == 0 && options.ranks > most_ranks)
    throw_error<UsageError>({"ranks(", options.ranks, ") > ", most_ranks, " threads of one process"});
  if (!(options.deadline_s >= 0 && options.deadline_s <= 1e9))
    throw_error<UsageError>({"deadline_s(", std::to_string(options.deadline_s), ") must be positive and at most 1e9 seconds"});
  if (options.deadline_s == 0) options.deadline_s = number_from_environment("WEFT_TIMEOUT_S", 0.001, 1e9).value_or(1800.0);
  if (options.threads_per_rank < 0)
    throw_error<UsageError>({"threads_per_rank(", options.threads_per_rank, ") must be at least 1"});
  if (options.threads_per_rank == 0) options.threads_per_rank = std::max(1, cores() / (here > 0 ? here : options.ranks));
  return options;
}

}  // namespace weft::runtime::detail
