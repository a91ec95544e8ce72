// SPDX-License-Identifier: Apache-2.0
#pragma once
// The default backend: ranks are threads of one process that read each other's memory. It needs no launcher and one debugger, and
// every combination of wrappers runs on one machine.
//
//   comm::run_threads(4, [](const Communicator& world) { world.barrier(); });

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include <weft/comm/communicator.hpp>
#include <weft/comm/run_result.hpp>
#include <weft/comm/threads/group.hpp>

namespace weft::comm {

namespace threads {

/// Runs `body(group)` on `ranks` threads and waits for all of them; after the first failure it waits at most `grace`.
RunResult run(int ranks, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body,
              std::chrono::duration<double> grace = std::chrono::duration<double>::max());

}  // namespace threads

/// Runs `f(communicator)` once on each of `ranks` threads; may be called any number of times in a process. Throws the error of
/// the rank that failed first, after all have ended. For tests and programs with their own main; others use `weft::run`.
template <class F>
void run_threads(int ranks, F&& f, std::chrono::duration<double> deadline = std::chrono::minutes(30)) {
  if (ranks < 1) throw_error<UsageError>({"run_threads: ranks(", ranks, ") must be at least 1"});
  const auto ending = threads::run(ranks, deadline, [&f](std::shared_ptr<Group> group) { f(Communicator(std::move(group))); });
  if (ending.error) std::rethrow_exception(ending.error);
}

/// Ranks are threads of this process.
struct Threads {
  static constexpr std::string_view name = "threads";
  /// All operations on all types, in host memory.
  static constexpr bool supports(Operation, DataType, MemoryKind memory) { return memory == MemoryKind::host; }
  /// Threads need no launcher: they run if no other backend is detected.
  static constexpr bool detected() { return false; }

  class Session {
   public:
    Session(int&, char**&) {}
    static constexpr bool owns_ranks = true;  ///< this backend starts the ranks itself, as many as requested
    int started() const { return 0; }         ///< ranks started by a launcher
    int here() const { return 0; }            ///< ranks of a launcher on this machine

    RunResult run(int ranks, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body) {
      return threads::run(ranks, deadline, body, std::chrono::milliseconds(1500));
    }
    /// Makes one rank report the error; returns the exit code.
    int fail(int code, const std::function<void()>& report) {
      report();
      return code;
    }
  };
};
static_assert(Backend<Threads>);

}  // namespace weft::comm

#ifndef WEFT_COMPILED
#include <weft/comm/threads_impl.hpp>
#endif
