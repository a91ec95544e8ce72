// SPDX-License-Identifier: Apache-2.0
#pragma once
// The proof that no rank of a world can go on: a count in waves, after Mattern's "Algorithms for distributed termination
// detection" (1987). It must never accuse a correct program, however long a thread loses its core between any two of its
// instructions, so nothing is read from a rank that may be moving: each rank reports itself.
//
//   const auto wave = census.wave();                 // before the poll
//   if (poll_every_operation()) continue;            // something advanced: no report
//   if (census.report(rank, wave, steps)) ...        // proven: all wait for each other
//
// A wave ends when every rank that has not ended has reported once that it polled all its operations after the wave began, in
// vain, inside a wait. A report is `still` if the rank has taken no step since its report of the wave before. Steps are changes
// that other ranks can see, and waits begun. A wave in which every report is still, and no rank has ended, proves a deadlock:
//
//   Let T be the moment at which the wave before ended. Each rank reported before T and again after T, and took no step in
//   between. Suppose that some rank takes a step after T, and look at the first such step (each depends only on steps that
//   happened before it). Its rank took it after its second report, hence inside the same wait: by a poll that saw no step but
//   those before T. But its poll of the second wave saw all of those, since the wave's number was written under the mutex after
//   them and read before the poll, and was in vain; and the effect of a poll follows from the messages that it sees. So no rank
//   takes another step: a rank that has ended takes none, and nothing else changes the waits.
//
// One wave alone proves nothing: a rank may be woken after its report by one that reports later.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <weft/core/standard.hpp>

/// A place at which the thread of a rank may lose its core for long. Nothing, except in the test of this proof, which sleeps.
#ifndef WEFT_PAUSE
#define WEFT_PAUSE() static_cast<void>(0)
#endif

namespace weft::comm::threads {

/// The reports of a world's ranks.
class Census {
 public:
  explicit Census(int ranks) : reports_(std::size_t(ranks)), left_(ranks) {}

  /// The number of the wave that is open, to be read before the poll that a report is about.
  std::uint64_t wave() const { return wave_.load(std::memory_order_acquire); }

  /// The rank polled all its operations in vain after it read `wave`, and has taken `steps` steps in all. True if this completes
  /// the proof that no rank can go on; the world must be ended then.
  bool report(int rank, std::uint64_t wave, std::uint64_t steps) {
    WEFT_PAUSE();
    const std::lock_guard lock(mutex_);
    Report& last = reports_[std::size_t(rank)];
    if (wave != wave_.load(std::memory_order_relaxed) || last.wave == wave) return false;  // too old a poll, or reported already
    still_ = still_ && last.wave + 1 == wave && last.steps == steps;
    last = {wave, steps};
    ++reported_;
    return close();
  }

  /// The rank takes no steps any more. Those that it took make the open wave void.
  void end(int rank) {
    WEFT_PAUSE();
    const std::lock_guard lock(mutex_);
    --left_;
    if (reports_[std::size_t(rank)].wave == wave_.load(std::memory_order_relaxed)) --reported_;
    still_ = false;
    close();
  }

 private:
  struct Report {
    std::uint64_t wave = 0, steps = 0;
  };

  /// Begins the next wave if all reports of this one are there; true if they were all still.
  bool close() {
    if (left_ == 0 || reported_ < left_) return false;
    const bool proven = still_;
    reported_ = 0;
    still_ = true;
    wave_.store(wave_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    return proven;
  }

  std::mutex mutex_;                    // guards all but reads of the wave's number
  std::atomic<std::uint64_t> wave_{2};  // so that no rank has reported in the wave before the first
  std::vector<Report> reports_;
  int left_, reported_ = 0;
  bool still_ = true;
};

}  // namespace weft::comm::threads
