// SPDX-License-Identifier: Apache-2.0
#pragma once
// The threads of a host device: the caller, and workers that wait for its loops. Each thread starts with the same share of pieces
// in every loop of the same length, so it finds its earlier data in its caches. Then it takes pieces of other threads. The caller
// never waits for a worker that has not started. Between loops, workers poll for about 50 us, roughly the cost of sleep and
// wake-up, and then sleep.
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

/// Work in pieces that threads may run in any order and concurrently.
struct TeamLoop {
  void (*call)(const void* body, std::size_t piece, std::size_t thread);
  const void* body;
  std::size_t pieces;
};

/// A condition on which threads wait: they spin if allowed, then sleep. The condition and the operations that make it true must
/// be sequentially consistent operations on atomics.
class SpinningCondition {
 public:
  template <class Condition>
  void wait(bool spin, const Condition& condition);
  /// Call it after the condition has become true.
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

  /// Runs the loop on `threads` threads, numbers 0 (the caller) to threads - 1, and returns when all pieces are done. The first
  /// call that needs the workers starts them. All calls must use the same number of threads and come from one thread at a time.
  /// Throws the first exception of a body, if any; pieces may then be skipped. A body must not run another loop of the team.
  void run(std::size_t threads, const TeamLoop& loop);
  /// The number of loops that workers could enter.
  std::uint64_t loops() const { return gate_ / one_loop; }

 private:
  // The pieces with which one thread starts; other threads take some when they have none.
  struct alignas(64) Share {
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };
  // The fields of gate_: bits 0 to 15 count the workers inside a loop, bit 16 is set while they may enter, and the rest is the
  // loop's number. Between loops no worker is inside, so after a fork the caller can still run loops, without workers.
  static constexpr std::uint64_t one_inside = 1, inside = 0xffff, open = 0x10000, one_loop = 0x20000;

  void start(std::size_t threads);
  void work(std::size_t thread);
  void serve(std::size_t thread);

  alignas(64) std::atomic<std::uint64_t> gate_{0};
  std::atomic<bool> ended_{false};
  TeamLoop loop_{};  // this and the shares change only while the gate is closed and no worker is inside
  std::size_t threads_ = 0;
  std::unique_ptr<Share[]> shares_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of the thread that set failed_
  SpinningCondition work_to_do_, work_done_;
  std::vector<std::thread> workers_;
  long process_ = 0;  // the process that started the workers; a fork has none of them
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/device/thread_team_impl.hpp>
#endif
