// SPDX-License-Identifier: Apache-2.0
#pragma once
// The default backend: ranks are threads of one process that read each other's memory. It needs no launcher and one debugger, and
// every combination of wrappers runs on one machine.
//
//   comm::run_threads(4, [](const Communicator& world) { world.barrier(); });

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/comm/run_result.hpp>
#include <weft/comm/threads/group.hpp>
#include <weft/core/list.hpp>
#include <weft/core/owner.hpp>

namespace weft::comm {

namespace threads {

/// Runs `body(group)` on `ranks` threads and waits for all of them; after the first failure it waits at most `grace`.
WEFT_COLD inline RunResult run(int ranks, std::chrono::duration<double> deadline, const std::function<void(std::shared_ptr<Group>)>& body,
                  std::chrono::duration<double> grace = std::chrono::duration<double>::max()) {
  // What threads use is shared, since one that is left alone may outlive this function.
  struct Run {
    std::shared_ptr<World> world;
    std::function<void(std::shared_ptr<Group>)> body;
    std::unique_ptr<std::exception_ptr[]> errors;
    std::mutex mutex;
    std::condition_variable changed;
    int ended = 0;
  };
  auto run = weft::detail::new_shared<Run>();
  run->world = weft::detail::new_shared<World>(ranks, deadline);
  run->body = body;
  run->errors.reset(new std::exception_ptr[std::size_t(ranks)]);
  weft::detail::List<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  auto shared = weft::detail::new_shared<Shared>(run->world, std::move(members), std::string("world"));

  const auto rank_main = [](Run* run, const std::shared_ptr<Shared>& shared, int rank) {
    std::exception_ptr error;
    std::string text;
    try {
      if (run->world->size() == 1) run->body(weft::detail::new_shared<SelfGroup>("world", "threads"));
      else run->body(std::make_shared<ThreadGroup>(shared, rank));
    } catch (const std::exception& caught) {
      error = std::current_exception();
      text = caught.what();
    } catch (...) {
      error = std::current_exception();
      text = "an exception that is no std::exception";
    }
    if (error) run->world->fail(rank, text);
    run->world->end(rank);
    std::lock_guard lock(run->mutex);
    run->errors[std::size_t(rank)] = error;
    ++run->ended;
    run->changed.notify_all();
  };
  const std::unique_ptr<std::thread[]> threads(new std::thread[std::size_t(ranks)]);
  for (int rank = 0; rank < ranks; ++rank)
    threads[std::size_t(rank)] = std::thread([rank_main, run, shared, rank] { rank_main(run.get(), shared, rank); });
  shared.reset();

  std::unique_lock lock(run->mutex);
  const auto all_ended = [&] { return run->ended == ranks; };
  while (!all_ended() && !run->world->failed()) run->changed.wait_for(lock, std::chrono::milliseconds(100));
  bool complete = true;
  if (grace == std::chrono::duration<double>::max()) run->changed.wait(lock, all_ended);
  else complete = run->changed.wait_for(lock, grace, all_ended);
  const int first = run->world->failure().rank;
  RunResult ending{first < 0 ? nullptr : run->errors[std::size_t(first)], first, complete};
  if (first >= 0 && !ending.error) {  // found by a rank that caught the error, or that has not left yet
    for (int rank = 0; rank < ranks && !ending.error; ++rank) ending.error = run->errors[std::size_t(rank)];
    if (!ending.error && !complete) ending.error = std::make_exception_ptr(Error(run->world->failure().text));
  }
  lock.unlock();
  for (int rank = 0; rank < ranks; ++rank) {
    std::thread& thread = threads[std::size_t(rank)];
    if (complete) thread.join();
    else thread.detach();
  }
  return ending;
}

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
