// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/threads.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/flight_file.hpp>
#include <weft/comm/threads.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

WEFT_COLD WEFT_INLINE RunResult run(int ranks, std::chrono::duration<double> deadline,
                                    const std::function<void(std::shared_ptr<Group>)>& body,
                                    std::chrono::duration<double> grace) {
  // The state of the threads is shared: a thread that is left alone may outlive this function.
  struct Run {
    std::shared_ptr<World> world;
    std::function<void(std::shared_ptr<Group>)> body;
    std::unique_ptr<std::exception_ptr[]> errors;
    std::mutex mutex;
    std::condition_variable changed;
    int ended = 0;
  };
  auto run = std::make_shared<Run>();
  run->world = std::make_shared<World>(ranks, deadline);
  run->body = body;
  run->errors.reset(new std::exception_ptr[std::size_t(ranks)]);
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  auto shared = std::make_shared<Shared>(run->world, std::move(members), std::string("world"), 0);

  const auto rank_main = [](Run* run, const std::shared_ptr<Shared>& shared, int rank) {
    std::exception_ptr error;
    std::string text;
    try {
      if (run->world->size() == 1) run->body(std::make_shared<SelfGroup>("world", "threads"));
      else run->body(std::make_shared<ThreadGroup>(shared, rank));
    } catch (const std::exception& caught) {
      error = std::current_exception();
      text = caught.what();
    } catch (...) {
      error = std::current_exception();
      text = "an exception that is no std::exception";
    }
    if (error) {
      run->world->fail(rank, text);
      write_flights(text, rank);
    }
    run->world->end(rank);
    std::lock_guard lock(run->mutex);
    run->errors[std::size_t(rank)] = error;
    ++run->ended;
    run->changed.notify_all();
  };
  const std::unique_ptr<std::thread[]> threads(new std::thread[std::size_t(ranks)]);
  int started = 0;
  try {
    for (; started < ranks; ++started)
      threads[std::size_t(started)] =
          std::thread([rank_main, run, shared, rank = started] { rank_main(run.get(), shared, rank); });
  } catch (const std::exception& error) {  // no thread, or no memory for one; those that run end with this failure
    const std::string text = weft::detail::joined({"ranks(", ranks, "): this process can start ", started, " threads more (",
                                                   error.what(), "): fewer ranks, or a higher limit (ulimit -u, ulimit -v)"});
    run->errors[std::size_t(started)] = std::make_exception_ptr(UsageError(text));
    run->world->fail(started, text);
    for (int rank = started; rank < ranks; ++rank) run->world->end(rank);
  }

  std::unique_lock lock(run->mutex);
  const auto all_ended = [&] { return run->ended == started; };
  while (!all_ended() && !run->world->failed()) run->changed.wait_for(lock, std::chrono::milliseconds(100));
  bool complete = true;
  if (grace == std::chrono::duration<double>::max()) run->changed.wait(lock, all_ended);
  else complete = run->changed.wait_for(lock, grace, all_ended);
  if (complete) shared->expect_all_received();
  // Ranks that ran out of the same memory may have failed before.
  const int first = started < ranks ? started : run->world->failure().rank;
  RunResult ending{first < 0 ? nullptr : run->errors[std::size_t(first)], first, complete};
  if (first >= 0 && !ending.error) {  // found by a rank that caught the error, or that has not left yet
    for (int rank = 0; rank < ranks && !ending.error; ++rank) ending.error = run->errors[std::size_t(rank)];
    if (!ending.error && !complete) ending.error = std::make_exception_ptr(Error(run->world->failure().text));
    if (!ending.error && run->world->failure().mismatch)  // found once all ranks had ended
      ending.error =
          std::make_exception_ptr(MismatchError(first, "world", "the end of the program", 0, run->world->failure().text));
  }
  lock.unlock();
  for (int rank = 0; rank < started; ++rank) {
    std::thread& thread = threads[std::size_t(rank)];
    if (complete) thread.join();
    else thread.detach();
  }
  return ending;
}

}  // namespace weft::comm::threads
