// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a device on a host: the one that calls and workers that wait for its loops. Each thread has the same share of
// the pieces in every loop of as many, so it finds in its caches what it wrote before; who has finished takes pieces of the
// others. Nobody waits for a worker that comes too late. Between loops workers look for the next one for some 50 us, about what
// sleep and wake-up cost, and then sleep.
//
//   team.run(2, {call, &body, 16});   // call(&body, piece, thread) for each piece of [0, 16); thread is 0 or 1

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::detail {

/// Work in pieces that threads may run in any order and at once.
struct TeamLoop {
  void (*call)(const void* body, std::size_t piece, std::size_t thread);
  const void* body;
  std::size_t pieces;
};

/// A place where threads wait for a condition: they spin if they may, then sleep. The condition and what makes it true are
/// sequentially consistent operations on atomics.
class WaitingRoom {
 public:
  template <class Condition>
  void wait(bool spin, const Condition& condition);
  /// To be called after the condition has become true.
  void wake();

 private:
  std::atomic<int> asleep_{0};
  std::atomic<unsigned> calls_{0};
};

class ThreadTeam {
 public:
  ThreadTeam() = default;
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  /// Runs the loop on `threads` threads, numbers 0 (the caller) to threads - 1, and returns when all is done. The first call that
  /// needs the workers starts them; all calls have the same number of threads and come from one thread at a time. Throws the
  /// first of the bodies' exceptions, if any; pieces may then be left out. A body must not run another loop of the team.
  void run(std::size_t threads, const TeamLoop& loop);

 private:
  // The pieces that one thread begins with; others take from it when they have none.
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };
  // The word by which workers learn of a loop and enter it: bits 0 to 15 the number of workers inside, bit 16 whether they may
  // enter, the rest the number of the loop. Between loops nobody is inside, so a fork of the caller has a team that works, alone.
  static constexpr std::uint64_t one_inside = 1, inside = 0xffff, open = 0x10000, one_loop = 0x20000;

  void start(std::size_t threads);
  void work(std::size_t thread);
  void serve(std::size_t thread);

  alignas(64) std::atomic<std::uint64_t> gate_{0};
  std::atomic<bool> ended_{false};
  TeamLoop loop_{};  // this and the shares change only while the gate is closed and nobody is inside
  std::size_t threads_ = 0;
  std::unique_ptr<Share[]> shares_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of the thread that set failed_
  WaitingRoom workers_room_, callers_room_;
  std::vector<std::thread> workers_;
  long process_ = 0;  // that started the workers; a fork has none of them
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/device/thread_team_impl.hpp>
#endif
