// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that all thread ranks of one world share: sleeping and waking, the spread of a failure to every rank, and the proof
// of a deadlock (comm/threads/census.hpp). Groups (comm/threads/group.hpp) are built on it; to the world an operation is
// something that advances when polled.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/errors.hpp>
#include <weft/comm/flight_recorder.hpp>
#include <weft/comm/intrusive_list.hpp>
#include <weft/comm/stop.hpp>
#include <weft/comm/threads/census.hpp>
#include <weft/core/relax.hpp>

namespace weft::comm::threads {

using Clock = std::chrono::steady_clock;

/// An operation in progress: it advances when the thread of its rank polls it.
class Advancing {
 public:
  virtual ~Advancing() = default;
  /// Advances as far as possible without waiting; true if anything changed.
  virtual bool advance() = 0;
  bool complete() const { return complete_; }
  /// A rank of the world without which it cannot advance, or -1.
  virtual int waits_for() const { return -1; }

  Advancing* next = nullptr;  ///< the next one that its rank has in progress

 protected:
  bool complete_ = false;
};

/// One rank of the world. Atomics are read by all ranks, other members only by the rank's own thread.
struct alignas(128) Rank {
  enum class State : int { running, waiting, ended };

  std::atomic<std::uint32_t> asleep{0};
  std::atomic<std::uint32_t> touching{0};  ///< nonzero while it reads or writes other ranks' buffers
  std::atomic<State> state{State::running};
  std::atomic<std::uint64_t> advances{0};  ///< changes that others can see, and waits begun: its steps in the world's census
  std::mutex mutex;
  std::condition_variable wake;
  bool woken = false;  // guarded by mutex
  FlightRecorder recorder;
  std::uint64_t next_group = 1;  ///< the lowest number that no communicator of this rank has had

  IntrusiveList<Advancing, &Advancing::next> under_way;  ///< started, not complete, in order of their start
};

/// The reason why a world ended: its first failure.
struct Failure {
  int rank = -1;
  bool mismatch = false;  ///< every waiting rank takes part in the mismatch
  std::string text;
};

class World {
 public:
  World(int size, std::chrono::duration<double> deadline) : deadline_(deadline), ranks_(std::size_t(size)), census_(size) {
    // Spinning pays only if the awaited rank has its own core: for some 50 us, the cost of sleep and wake-up. Few yields: on a
    // busy machine each can lose the core for milliseconds, while a sleeping rank is woken at once.
    const bool roomy = unsigned(size) <= std::max(1u, std::thread::hardware_concurrency());
    spins_ = roomy ? 1500 : 20;
    yields_ = roomy ? 2 : 4;
    for (int r = 0; r < size; ++r) rank(r).recorder.belongs_to(r, size, "threads");
  }

  int size() const { return int(ranks_.size()); }
  Rank& rank(int r) { return ranks_[std::size_t(r)]; }
  std::chrono::duration<double> deadline() const { return deadline_; }

  // --- failure -----------------------------------------------------------------------------------------------------
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Ends the world's communication and wakes every rank; the first caller's reason is kept.
  void fail(int rank, const std::string& text, bool mismatch = false);
  Failure failure() const {
    std::lock_guard lock(failure_mutex_);
    return failure_;
  }
  /// After `fail`: returns once no rank but `self` touches a buffer of another rank. None begins to afterwards, so buffers may be
  /// freed.
  void quiesce(int self);
  /// Held while a rank reads or writes buffers of other ranks; false if the world has failed and the buffers may be gone.
  class Touch {
   public:
    Touch(World& world, Rank& rank) : rank_(rank) {
      rank_.touching.exchange(1, std::memory_order_seq_cst);
      allowed_ = !world.failed_.load(std::memory_order_seq_cst);
    }
    Touch(const Touch&) = delete;
    Touch& operator=(const Touch&) = delete;
    ~Touch() { rank_.touching.store(0, std::memory_order_release); }
    bool allowed() const { return allowed_; }

   private:
    Rank& rank_;
    bool allowed_;
  };

  // --- sleep and wake ----------------------------------------------------------------------------------------------
  /// Wakes rank r if it sleeps; to be called after a store (seq_cst) to the state that it may wait for. The sleeper stores
  /// `asleep` and then loads that state, this rank stores the state and then loads `asleep`: if either pair may change places,
  /// both can load old values, and the sleeper sleeps on until its next look (20 ms). Acquire and release forbid neither, on x86
  /// no more than on ARM; all four have to be seq_cst, so that one of the two loads comes after the other's store in their single
  /// order.
  void wake(int r, bool always = false);

  /// Polls every operation that this rank has in progress.
  bool advance_all(Rank& self);

  enum class Outcome { done, failed, timed_out, stuck, interrupted };

  /// A last poll after a failure. A rank may fail between this rank's look at an operation and its look at failures. An operation
  /// that every rank had joined by then is complete on all of them, so the operation that an error names does not depend on
  /// timing.
  static Outcome last_chance(Advancing& operation) {
    operation.advance();
    return operation.complete() ? Outcome::done : Outcome::failed;
  }

  /// Advances `operation`, and all others that this rank has in progress, until it is complete: spins a little, then sleeps.
  Outcome wait(int r, Advancing& operation);

  /// Called after a rank's function has returned or thrown.
  void end(int r);

  /// The position of every rank, for messages.
  std::string positions();

 private:
  static constexpr auto poll_interval = std::chrono::milliseconds(20);

  std::chrono::duration<double> deadline_;
  unsigned spins_, yields_;
  std::vector<Rank> ranks_;
  Census census_;
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Failure failure_;
};

}  // namespace weft::comm::threads

#ifndef WEFT_COMPILED
#include <weft/comm/threads/world_impl.hpp>
#endif
