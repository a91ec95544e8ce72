// SPDX-License-Identifier: Apache-2.0
#pragma once
// The heartbeat of a rank, which also learns of lost ranks. Each process keeps one connection to the store of its job and sends a
// beat twice a second. The store informs all ranks as soon as a connection breaks, or if no beat has come for WEFT_HEARTBEAT_S
// seconds: a stopped process or a machine without power closes no connection. A thread of its own sends and listens, so that a
// rank that computes for long is not taken for a stopped one. The thread touches nothing but this object.
//
//   store::Heartbeat heartbeat("127.0.0.1", 29501, {rank, world, job}, secret, deadline);
//   if (heartbeat.lost() >= 0) throw Error(heartbeat.fate());

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include <weft/comm/store/sealed.hpp>
#include <weft/comm/store/server.hpp>

namespace weft::comm::store {

class Heartbeat {
 public:
  /// Connects to the store. Throws StoreError at the deadline, or if the store refuses this rank.
  Heartbeat(const std::string& host, int port, const Identity& who, const std::string& secret, Deadline deadline);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  ~Heartbeat();

  /// The lost rank, or -1.
  int lost() const { return lost_.load(std::memory_order_acquire); }
  /// The cause of the loss: "rank 2 is lost, ...".
  std::string fate() const {
    const std::lock_guard lock(mutex_);
    return fate_;
  }
  /// True if a connection to the store broke for bytes that are no valid frame, of any rank. lost() is then the rank that sent
  /// them, or 0 on that rank itself.
  bool disturbed() const { return disturbed_.load(std::memory_order_acquire); }
  /// True if this rank received them.
  bool found_invalid_frame() const { return disturbed() && found_; }
  /// Ends in good order: this rank is not reported as lost.
  void leave() noexcept;

 private:
  void beat();
  /// Sends a request, or the rest of the last one.
  void send(std::string_view request) noexcept;
  void lose(int rank, std::string text, bool disturbed = false);
  void take(std::string_view bytes);
  void take_reply(const std::string& text);

  std::uint32_t rank_;
  std::string where_;
  std::chrono::duration<double> patience_;
  Link link_;
  Socket wakes_;
  Sealed messages_;
  std::atomic<int> lost_{-1};
  std::atomic<bool> stop_{false}, disturbed_{false};
  bool found_ = false;  // written before disturbed_
  mutable std::mutex mutex_;
  std::string fate_;
  std::mutex sending_;  // of the bytes in flight, and of the counter of messages_
  std::string outgoing_;
  std::thread thread_;
};

}  // namespace weft::comm::store

#ifndef WEFT_COMPILED
#include <weft/comm/store/heartbeat_impl.hpp>
#endif
