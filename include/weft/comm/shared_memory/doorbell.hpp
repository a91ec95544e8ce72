// SPDX-License-Identifier: Apache-2.0
#pragma once
// The place where a process sleeps while it waits for other processes of its machine. A process has one doorbell for all its
// groups, so that any post to any of them wakes it.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include <weft/core/standard.hpp>

namespace weft::comm::shared_memory {

/// Lies in shared memory; zeroed memory is a valid doorbell.
///
/// No post is missed: the owner stores `asleep` and then loads the posts, a rank that posts stores it and then loads
/// `asleep`. These four are seq_cst (the loads, too: the owner's look at a slot is in slots.hpp), so in their single order one of
/// the two loads comes after the other side's store, on any processor: the owner sees the post, or is rung. With acquire and
/// release alone both may load old values (store buffers), and the owner would sleep until its limit. `seen` is read before
/// `asleep` is stored, so that a ring between the two ends the sleep at once: the kernel compares `rung` with it under its own
/// lock.
///
///   bell.lie_down();                               // from now on others ring
///   if (nothing was posted before) bell.sleep(20ms);
///   bell.get_up();
struct alignas(128) Doorbell {
  std::atomic<std::uint32_t> asleep{0}, rung{0};
  std::uint32_t seen = 0;  ///< used by the owner only

  void lie_down() {
    seen = rung.load(std::memory_order_relaxed);
    asleep.exchange(1, std::memory_order_seq_cst);
  }
  /// Sleeps until rung after `lie_down`, for at most `most`.
  void sleep(std::chrono::microseconds most) {
    const timespec limit{time_t(most.count() / 1000000), long(most.count() % 1000000) * 1000};
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rung), FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  void get_up() { asleep.store(0, std::memory_order_relaxed); }

  /// Wakes the owner; to be called after the posted data is visible to all (seq_cst).
  void ring() {
    if (asleep.load(std::memory_order_seq_cst) == 0) return;
    rung.fetch_add(1, std::memory_order_seq_cst);
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rung), FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
};
static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace weft::comm::shared_memory
