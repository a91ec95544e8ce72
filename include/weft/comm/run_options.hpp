// SPDX-License-Identifier: Apache-2.0
#pragma once
// Options of a run, set by the program or by its user in the environment: ranks, deadline, threads.
//
//   weft::run<comm::Threads>(RunOptions{.ranks = 4, .deadline_s = 60}, f);

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <weft/core/error.hpp>

namespace weft::runtime {

/// The handler of Ctrl-C, SIGTERM and SIGXFSZ during `run`: `run`, unless the program has its own handlers or ignores them;
/// always `run`; or none, in a program that calls comm::request_stop itself.
enum class Signals { unless_handled, always, never };

/// Zero means: the environment's value (WEFT_RANKS, WEFT_TIMEOUT_S, WEFT_STOP_S), else the default.
struct RunOptions {
  /// Default: one a core; under a launcher the number that it started, and no other number.
  int ranks = 0;
  double deadline_s = 0;     ///< of every wait in communication; default: 30 minutes
  int threads_per_rank = 0;  ///< of kernels; default: cores / ranks, at least 1
  int argc = 0;              ///< the program's arguments, for libraries that want them
  char** argv = nullptr;
  /// The limit of a wait after Ctrl-C or SIGTERM. Default: 10 s in a program that calls World::interrupted or
  /// World::stop_requested, else 1 s.
  double stop_s = 0;
  Signals signals = Signals::unless_handled;
  /// "N" or "N:rank": the program runs as that rank of N, without the others (runtime/rehearse.hpp). Default: its argument
  /// --rehearse, else WEFT_REHEARSE.
  const char* rehearse = nullptr;
  const char* ranks_per_node = nullptr;  ///< of a rehearsal; default: --ranks-per-node, else WEFT_RANKS_PER_NODE
  const char* machine = nullptr;         ///< whose time a rehearsal estimates; default: --machine, else WEFT_MACHINE
  /// An error that the program met before it had ranks, in its command line or its files: `run` reports it in place of f, once
  /// under any launcher, and returns its exit code.
  std::exception_ptr refused = nullptr;
};

/// The options of a program that reads its arguments itself and refuses unknown ones: removes --rehearse, --ranks-per-node and
/// --machine, with their values, from `argv` and lowers `argc`. `run` reports wrong values.
RunOptions take_run_options(int& argc, char** argv);

/// The options of a program without other arguments: any other argument is refused. --help prints them and --version prints the
/// versions, and both end the program.
RunOptions only_run_options(int argc, char** argv, RunOptions options = {});

/// The answer to --version: "NAME, weft 0.1.0 (g++ 12.2.0, Kokkos 4.7.0, oneDNN 2.6.0MORE)", the versions that weft was compiled
/// with. `more`: the program's other libraries, each after ", ".
std::string versions(std::string_view name, std::string_view more = "");
/// Prints the versions, and returns the program's exit code: 0, or 1 if standard output cannot be written.
int print_versions(std::string_view name, std::string_view more = "");

/// The whole number that a text is, such as a command line's `--tp 2`. Throws UsageError, which names it, for anything else.
int whole_number_of(std::string_view name, std::string_view text, int least, int most);

namespace detail {

/// The number in [least, most] of that environment variable; nothing if it is not set. Throws UsageError for any other text.
/// Every number that weft takes from the environment comes from here.
std::optional<double> number_from_environment(const char* name, double least, double most);
/// A whole number.
std::optional<int> whole_number_from_environment(const char* name, int least, int most);
/// A switch: "0" or "1".
bool switch_from_environment(const char* name, bool otherwise);
/// Throws UsageError for a number of threads with which OpenMP or Kokkos would end the process when it starts.
void require_thread_variables();

/// The most threads of one process: Kokkos' OpenMP ends a program that asks for more.
inline constexpr int most_threads = 512;

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
