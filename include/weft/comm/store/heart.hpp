// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's sign of life, and its news of who is gone. Each process keeps one connection to the store of its job and says twice a
// second that it lives; the store tells all as soon as a connection breaks, or if nothing came over one for WEFT_HEARTBEAT_S
// seconds: a process that is stopped, or whose machine is away, closes nothing. A thread that sleeps sends and listens, so that
// a rank that computes for long is not taken for one that stands still; it touches nothing but this object.
//
//   store::Heart heart("127.0.0.1", 29501, {rank, world, job}, secret, deadline);
//   if (heart.lost() >= 0) throw Error(heart.fate());

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include <weft/comm/store/server.hpp>

namespace weft::comm::store {

class Heart {
 public:
  /// Connects to the store. Throws StoreError at the deadline, or if the store refuses this rank.
  Heart(const std::string& host, int port, const Identity& who, const std::string& secret, Deadline deadline);
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  ~Heart();

  /// The rank that is gone, or -1.
  int lost() const { return lost_.load(std::memory_order_acquire); }
  /// How it went, as "rank 2 is lost, ...".
  std::string fate() const {
    const std::lock_guard lock(mutex_);
    return fate_;
  }
  /// Ends in good order, so that nobody is told that this rank is lost.
  void leave() noexcept;

 private:
  void beat();
  void lose(int rank, std::string text);
  void take(std::string& incoming);

  std::uint32_t rank_;
  std::string where_;
  std::chrono::duration<double> patience_;
  Socket socket_, wakes_;
  std::atomic<int> lost_{-1};
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::string fate_;
  std::thread thread_;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/heart_impl.hpp>
#endif
