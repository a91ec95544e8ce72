// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options of a run, set by the program or by its user in the environment: ranks, deadline, threads.
//
//   weft::run<comm::Threads>(RunOptions{.ranks = 4, .deadline_s = 60}, f);

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <weft/core/error.hpp>

namespace weft::runtime {

/// Zero means: the environment's value (WEFT_RANKS, WEFT_TIMEOUT_S), else the default.
struct RunOptions {
  /// Default: one a core; under a launcher the number that it started, and no other number.
  int ranks = 0;
  double deadline_s = 0;     ///< of every wait in communication; default: 30 minutes
  int threads_per_rank = 0;  ///< of kernels; default: cores / ranks, at least 1
  int argc = 0;              ///< the program's arguments, for libraries that want them
  char** argv = nullptr;
};

namespace detail {

std::optional<double> number_from_environment(const char* name, double least, double most);

inline int cores() {
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : int(count);
}

/// The options with every default filled in. `started` is 0 for a backend that starts its own ranks, else the number that the
/// launcher started, `here` of them on this machine.
RunOptions resolve(RunOptions options, int started, int here);

}  // namespace detail

}  // namespace weft::runtime

#ifndef WEFT_COMPILED
#include <weft/comm/run_options_impl.hpp>
#endif
