// SPDX-License-Identifier: Apache-2.0
#pragma once
// TCP connections between all processes of a world in Gloo's transport, and messages over them. A message begins with an envelope
// that describes the sender's call. Short data travels in the envelope; long data follows once the receiver has found that both
// ranks made the same call. Gloo's own thread moves the bytes.

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/errors.hpp>
#include <weft/comm/gloo/envelope.hpp>
#include <weft/comm/gloo/handover.hpp>
#include <weft/comm/operation.hpp>

namespace weft::comm::gloo {

using GlooBuffer = ::gloo::transport::tcp::UnboundBuffer;

/// Access to Gloo's counts of messages sent and received by a buffer. Gloo's interface only lets a user wait for them, and a wait
/// that times out closes every connection.
class Peek final : public GlooBuffer {
 public:
  /// The number of messages; throws the error that ended the connection.
  static std::size_t receives(GlooBuffer& buffer) {
    std::lock_guard lock(buffer.*&Peek::m_);
    throw_if_broken(buffer);
    return std::size_t(buffer.*&Peek::recvCompletions_);
  }
  static std::size_t sends(GlooBuffer& buffer) {
    std::lock_guard lock(buffer.*&Peek::m_);
    throw_if_broken(buffer);
    return std::size_t(buffer.*&Peek::sendCompletions_);
  }
  static void throw_if_broken([[maybe_unused]] GlooBuffer& buffer) {
#if !defined(__CUDA_ARCH__)  // nvcc would look for it in the device's code, which has no use for it
    (buffer.*&Peek::throwIfException)();
#endif
  }
  static bool received(GlooBuffer& buffer) { return receives(buffer) > 0; }
  static bool sent(GlooBuffer& buffer) { return sends(buffer) > 0; }
  /// Waits until the buffer has received or sent `count` messages, for at most `patience`.
  static void wait(GlooBuffer& buffer, bool sends, std::size_t count, std::chrono::microseconds patience) {
    std::unique_lock lock(buffer.*&Peek::m_);
    auto& changed = sends ? buffer.*&Peek::sendCv_ : buffer.*&Peek::recvCv_;
    changed.wait_for(lock, patience, [&] {
      throw_if_broken(buffer);
      return std::size_t(sends ? buffer.*&Peek::sendCompletions_ : buffer.*&Peek::recvCompletions_) >= count;
    });
  }
};

/// The 64-bit tag that tells messages of one connection apart: kind, group, and the tag of a message, or the last bits of a
/// collective's number and its step.
enum class Kind : std::uint64_t { collective, message, payload, notice };
constexpr std::uint64_t slot(Kind kind, std::uint64_t group, std::uint64_t number, std::uint64_t step = 0) {
  const std::uint64_t last = kind == Kind::message ? number & 0xffffffff : (number & 0x3ffffff) << 8 | step;
  return std::uint64_t(kind) << 62 | (group & 0xfffffff) << 34 | last;
}
constexpr std::uint64_t payload_slot(std::uint64_t number) { return std::uint64_t(Kind::payload) << 62 | number; }
inline constexpr std::uint64_t most_groups = std::uint64_t(1) << 28;

class Mesh {
 public:
  /// Over connections that are proved already, one to each other rank (comm/store/links.hpp).
  Mesh(int rank, std::vector<store::Socket> connections, std::chrono::milliseconds timeout)
      : rank_(rank), size_(int(connections.size())) {
    ::gloo::transport::tcp::attr where;
    where.hostname = "127.0.0.1";  // of sockets that nobody uses
    device_ = ::gloo::transport::tcp::CreateDevice(where);
    context_ = device_->createContext(rank, size_);
    context_->setTimeout(std::max(timeout / 5, std::chrono::milliseconds(1)));
    Handover handover(device_);
    for (int q = 0; q < size_; ++q)
      if (q != rank) handover.give(*context_->createPair(q), connections[std::size_t(q)]);
  }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::unique_ptr<GlooBuffer> buffer(void* data, std::size_t bytes) {
    auto any = context_->createUnboundBuffer(data, bytes);
    return std::unique_ptr<GlooBuffer>(static_cast<GlooBuffer*>(any.release()));
  }
  std::uint64_t next_payload() { return reserve_payloads(1); }
  /// The first of `count` new payload numbers.
  std::uint64_t reserve_payloads(std::uint64_t count) { return std::exchange(payloads_, payloads_ + count); }

 private:
  int rank_, size_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<::gloo::transport::Context> context_;
  std::uint64_t payloads_ = 1;
};

class Outgoing {
 public:
  Outgoing(Mesh& mesh, int peer, std::uint64_t where, Head head, const void* data) : peer_(peer) {
    const std::size_t inside = head.bytes <= eager ? head.bytes : 0;
    if (inside != head.bytes) head.payload = mesh.next_payload();
    staging_.reset(new char[sizeof head + inside]);
    std::memcpy(staging_.get(), &head, sizeof head);
    if (inside != 0) std::memcpy(staging_.get() + sizeof head, data, inside);
    envelope_ = mesh.buffer(staging_.get(), sizeof head + inside);
    envelope_->send(peer, where, 0, sizeof head + inside);
    if (inside == head.bytes) return;
    payload_ = mesh.buffer(const_cast<void*>(data), head.bytes);
    payload_->send(peer, payload_slot(head.payload), 0, head.bytes);
  }
  int peer() const { return peer_; }
  bool done() const { return Peek::sent(*envelope_) && (!payload_ || Peek::sent(*payload_)); }
  void wait(std::chrono::microseconds patience) const { Peek::wait(payload_ ? *payload_ : *envelope_, true, 1, patience); }
  /// Releases the user's memory. The envelope stays: a message that was announced and never comes would block the connection.
  void drop() { payload_.reset(); }

 private:
  int peer_;
  std::unique_ptr<char[]> staging_;
  std::unique_ptr<GlooBuffer> envelope_, payload_;
};

class Incoming {
 public:
  Incoming(Mesh& mesh, int peer, std::uint64_t where, Head expected, void* data)
      : mesh_(&mesh), peer_(peer), expected_(expected), data_(data) {
    const std::size_t most = sizeof(Head) + eager;
    staging_.reset(new char[most]);
    envelope_ = mesh.buffer(staging_.get(), most);
    envelope_->recv(peer, where, 0, most);
  }
  int peer() const { return peer_; }
  const Head& expected() const { return expected_; }
  /// True once the envelope has arrived.
  bool arrived() const { return Peek::received(*envelope_); }
  Head head() const { return read_head(staging_.get()); }
  bool fits() const { return weft::comm::gloo::fits(head(), expected_); }
  /// Copies the data out of the envelope, or starts to receive the payload.
  void deliver() {
    if (expected_.bytes > eager) {
      payload_ = mesh_->buffer(data_, expected_.bytes);
      payload_->recv(peer_, payload_slot(head().payload), 0, expected_.bytes);
    } else if (expected_.bytes != 0) {
      std::memcpy(data_, staging_.get() + sizeof(Head), expected_.bytes);
    }
  }
  bool done() const { return !payload_ || Peek::received(*payload_); }
  void wait(std::chrono::microseconds patience) const { Peek::wait(payload_ ? *payload_ : *envelope_, false, 1, patience); }
  void drop() { payload_.reset(); }

 private:
  Mesh* mesh_;
  int peer_;
  Head expected_;
  void* data_;
  std::unique_ptr<char[]> staging_;
  std::unique_ptr<GlooBuffer> envelope_, payload_;
};

}  // namespace weft::comm::gloo
