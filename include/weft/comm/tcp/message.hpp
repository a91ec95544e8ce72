// SPDX-License-Identifier: Apache-2.0
#pragma once
// Messages between two ranks. A message begins with an envelope that describes the sender's call. Short data travels in the
// envelope; long data follows once the receiver has found that both ranks made the same call.
//
//   Incoming in(mesh, 1, slot(Kind::message, 0, tag), expected, memory);
//   if (in.arrived() && in.fits()) in.deliver();

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <weft/comm/tcp/envelope.hpp>
#include <weft/comm/tcp/full_mesh.hpp>

namespace weft::comm::tcp {

/// The 64-bit tag that distinguishes the messages of one connection: kind, group, and the tag of a message, or the last bits of a
/// collective's number and its step.
enum class Kind : std::uint64_t { collective, message, payload, notice };
constexpr std::uint64_t slot(Kind kind, std::uint64_t group, std::uint64_t number, std::uint64_t step = 0) {
  const std::uint64_t last = kind == Kind::message ? number & 0xffffffff : (number & 0x3ffffff) << 8 | step;
  return std::uint64_t(kind) << 62 | (group & 0xfffffff) << 34 | last;
}
constexpr std::uint64_t payload_slot(std::uint64_t number) { return std::uint64_t(Kind::payload) << 62 | number; }
/// The slot of the answer that the bytes of a payload were taken from the sender's heap.
constexpr std::uint64_t taken_slot(std::uint64_t number) { return payload_slot(number) | std::uint64_t(1) << 61; }
inline constexpr std::uint64_t most_groups = std::uint64_t(1) << 28;

class Outgoing {
 public:
  /// `heaps`: those of the group, for a message that may stay there; else null.
  Outgoing(Mesh& mesh, int peer, std::uint64_t where, Head head, const void* data,
           const shared_memory::PeerHeaps* heaps = nullptr)
      : peer_(peer) {
    if (heaps != nullptr) head.place = heaps->offer(data, head.bytes);
    if (head.place) heaps_ = heaps, place_ = head.place;
    const std::size_t inside = head.bytes <= eager ? head.bytes : 0;
    if (inside != head.bytes) head.payload = mesh.next_payload();
    staging_.reset(new char[sizeof head + inside]);
    std::memcpy(staging_.get(), &head, sizeof head);
    if (inside != 0) std::memcpy(staging_.get() + sizeof head, data, inside);
    envelope_ = mesh.buffer(staging_.get(), sizeof head + inside);
    envelope_->send(peer, where, 0, sizeof head + inside);
    if (inside == head.bytes) return;
    if (heaps_ != nullptr) {
      payload_ = mesh.buffer(taken_, sizeof taken_);
      payload_->recv(peer, taken_slot(head.payload), 0, sizeof taken_);
      return;
    }
    payload_ = mesh.buffer(const_cast<void*>(data), head.bytes);
    payload_->send(peer, payload_slot(head.payload), 0, head.bytes);
  }
  int peer() const { return peer_; }
  bool done() const { return envelope_->sent() && (!payload_ || (heaps_ != nullptr ? payload_->received() : payload_->sent())); }
  void wait(std::chrono::microseconds patience) const {
    if (heaps_ != nullptr && envelope_->sent()) payload_->wait_for_receives(1, patience);
    else (payload_ && heaps_ == nullptr ? *payload_ : *envelope_).wait_for_sends(1, patience);
  }
  /// Releases the user's memory. The envelope stays: a rank that comes later still finds out which call this one made.
  void drop() {
    if (heaps_ != nullptr) heaps_->give_up(place_);
    payload_.reset();
  }

 private:
  int peer_;
  const shared_memory::PeerHeaps* heaps_ = nullptr;  // if the bytes stay in this rank's heap
  shared_memory::HeapPlace place_;
  char taken_[1] = {};
  std::unique_ptr<char[]> staging_;
  std::unique_ptr<Buffer> envelope_, payload_;
};

class Incoming {
 public:
  /// `heaps`, `from`: the heaps of the group and the sender's rank there, for a message that may lie in a heap.
  Incoming(Mesh& mesh, int peer, std::uint64_t where, Head expected, void* data, const shared_memory::PeerHeaps* heaps = nullptr,
           int from = 0)
      : mesh_(&mesh), peer_(peer), from_(from), expected_(expected), data_(data), heaps_(heaps) {
    const std::size_t most = sizeof(Head) + eager;
    staging_.reset(new char[most]);
    envelope_ = mesh.buffer(staging_.get(), most);
    envelope_->recv(peer, where, 0, most);
  }
  int peer() const { return peer_; }
  const Head& expected() const { return expected_; }
  /// True once the envelope has arrived.
  bool arrived() const { return envelope_->received(); }
  Head head() const { return read_head(staging_.get()); }
  bool fits() const { return weft::comm::tcp::fits(head(), expected_); }
  /// Copies the data out of the envelope, or starts to receive the payload.
  void deliver() {
    if (expected_.bytes > eager && head().place && heaps_ != nullptr) {
      if (!heaps_->copy(from_, head().place, data_, expected_.bytes))
        throw Broken("the sender has given up a message of this communicator");
      taken_ = mesh_->buffer(word_, sizeof word_);
      taken_->send(peer_, taken_slot(head().payload), 0, sizeof word_);
    } else if (expected_.bytes > eager) {
      payload_ = mesh_->buffer(data_, expected_.bytes);
      payload_->recv(peer_, payload_slot(head().payload), 0, expected_.bytes);
    } else if (expected_.bytes != 0) {
      std::memcpy(data_, staging_.get() + sizeof(Head), expected_.bytes);
    }
  }
  bool done() const { return (!payload_ || payload_->received()) && (!taken_ || taken_->sent()); }
  void wait(std::chrono::microseconds patience) const {
    if (taken_) taken_->wait_for_sends(1, patience);
    else (payload_ ? *payload_ : *envelope_).wait_for_receives(1, patience);
  }
  void drop() { payload_.reset(); }

 private:
  Mesh* mesh_;
  int peer_, from_;
  Head expected_;
  void* data_;
  const shared_memory::PeerHeaps* heaps_;
  char word_[1] = {};
  std::unique_ptr<char[]> staging_;
  std::unique_ptr<Buffer> envelope_, payload_, taken_;
};

}  // namespace weft::comm::tcp
