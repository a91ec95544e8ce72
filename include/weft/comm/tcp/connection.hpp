// SPDX-License-Identifier: Apache-2.0
#pragma once
// One connection to another rank: messages from the memory of one process to the memory of the other, without a copy. A receiver
// announces its memory in a frame; a sender waits for that, so that no more bytes come than there is room for. Whatever comes
// that is no frame of the peer's, or none that this rank has room for, breaks the connection: every message under way gets the
// error. Threads that post messages and the loop of the mesh share a connection; no exception leaves `handle`.
//
//   Connection connection(0, 1, std::move(link), epoll, signal);
//   connection.receive(buffer, slot, memory, bytes);      // the other rank: connection.send(buffer, slot, memory, bytes)
//   connection.handle(events);                            // in the loop

#include <sys/epoll.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>

#include <weft/comm/store/frame.hpp>
#include <weft/comm/store/socket.hpp>

namespace weft::comm::tcp {

using store::Frame, store::FrameKind, store::FrameSeal, store::InvalidFrame;

/// The end of a connection. The text names the peer.
class Broken final : public std::exception {
 public:
  explicit Broken(const char* text = "") { std::snprintf(text_, sizeof text_, "%s", text); }
  const char* what() const noexcept override { return text_; }
  bool invalid() const noexcept { return invalid_; }  ///< the peer's bytes were no frame

 private:
  friend class Connection;
  char text_[240] = "";  // no memory is asked for where memory may have ended
  bool invalid_ = false;
};

/// Wakes threads that wait for messages.
class Signal {
 public:
  void notify() {
    { const std::lock_guard lock(mutex_); }  // a thread between its look and its wait
    changed_.notify_all();
  }
  template <class Done>
  void wait(std::chrono::microseconds patience, Done&& done) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, done);
  }
  /// A connection has ended for bytes that are no valid frame.
  void disturb() { disturbed_.store(true, std::memory_order_release); }
  bool disturbed() const { return disturbed_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> disturbed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// The messages that one buffer has under way: how many are complete, and why the others never will be.
class Delivery {
 public:
  std::size_t sends() const { return count(sends_); }
  std::size_t receives() const { return count(receives_); }

 protected:
  std::size_t complete() const { return sends_.load(std::memory_order_acquire) + receives_.load(std::memory_order_acquire); }

 private:
  friend class Connection;
  std::size_t count(const std::atomic<std::size_t>& messages) const {
    if (const Broken* broken = broken_.load(std::memory_order_acquire); broken != nullptr) throw Broken(*broken);
    return messages.load(std::memory_order_acquire);
  }
  std::atomic<std::size_t> sends_{0}, receives_{0};
  std::atomic<const Broken*> broken_{nullptr};
};

class Connection {
 public:
  /// Messages of the peer's that may be announced before this rank sends them.
  static constexpr std::size_t most_announced = std::size_t(1) << 20;

  /// `epoll` reports this connection's events with the number of the peer.
  Connection(int rank, int peer, store::Link link, int epoll, Signal& signal);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Sends `length` bytes once the peer has room for them in `slot`. Throws Broken.
  void send(Delivery& buffer, std::uint64_t slot, const std::byte* data, std::size_t length);
  /// Announces room for a message of at most `length` bytes; those of one slot are filled in this order. Throws Broken.
  void receive(Delivery& buffer, std::uint64_t slot, std::byte* data, std::size_t length);
  /// Touches the buffer's memory no more. A message that was announced is received and dropped; one that the peer already expects
  /// is copied, and sent.
  void forget(Delivery& buffer) noexcept;
  /// Sends and receives as much as the socket takes without waiting.
  void handle(std::uint32_t events) noexcept;
  /// Ends the connection.
  void fail(const char* why) noexcept;
  void shut() noexcept { ::shutdown(link_.socket.get(), SHUT_RDWR); }

 private:
  struct Message {
    Delivery* buffer;  ///< null: forgotten
    std::byte* data;
    std::size_t length;
  };
  /// A frame that is being sent.
  struct Leaving {
    FrameSeal::Head head;
    FrameSeal::Code code;
    Message message;
    bool has_data;
    std::size_t sent = 0;
    std::unique_ptr<std::byte[]> kept = nullptr;
    std::size_t bytes() const { return head.size() + (has_data ? message.length + FrameSeal::code_bytes : 0); }
  };
  using Messages = std::multimap<std::uint64_t, Message>;  // of one slot in the order in which they came

  void break_off(bool invalid, const char* format, const char* why = "") noexcept;
  void expect_whole() const {
    if (is_broken_) throw Broken(broken_);
  }
  void push(const Frame& frame, Message message);
  void write();
  void watch(bool writable);
  bool read();
  void parse();
  void begin_frame(const Frame& frame);

  const int peer_, epoll_;
  store::Link link_;
  Signal& signal_;
  std::mutex mutex_;  // of all that follows
  FrameSeal out_, in_;
  std::deque<Leaving> leaving_;
  Messages sends_, receives_;                              // whose room was not announced yet; whose room was
  std::multimap<std::uint64_t, std::uint64_t> announced_;  // room of the peer's: slot and bytes
  // The incoming frame: its data, of which `got_` bytes are there, then its tail.
  bool inside_ = false;
  Message arriving_{};
  std::size_t got_ = 0;
  FrameSeal::Code code_{};
  std::array<char, 16384> inbox_;  // received, from `begin_` to `end_`: heads, tails, and the beginning of data
  std::size_t begin_ = 0, end_ = 0;
  bool watches_writable_ = false, deaf_ = false, news_ = false, is_broken_ = false;
  Broken broken_;
};

}  // namespace weft::comm::tcp

#ifndef WEFT_COMPILED
#include <weft/comm/tcp/connection_impl.hpp>
#endif
