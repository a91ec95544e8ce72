// SPDX-License-Identifier: Apache-2.0
#pragma once
// The connections between all processes of a world, and one thread that moves bytes on them whatever the program does. A buffer
// sends and receives messages; a slot distinguishes the messages of one connection.
//
//   Mesh mesh(rank, store::link_all(client, rendezvous));
//   auto buffer = mesh.buffer(memory, bytes);
//   buffer->recv(1, slot, 0, bytes);                       // rank 1: buffer->send(0, slot, 0, bytes)
//   while (!buffer->received()) buffer->wait_for_receives(1, patience);

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <weft/comm/tcp/connection.hpp>

namespace weft::comm::tcp {

class Mesh;

/// Memory of messages. All counts throw Broken if one of the buffer's messages can no longer come or go. At its end it touches
/// the memory no more, whatever is under way.
class Buffer final : private Delivery {
 public:
  Buffer(Mesh& mesh, void* data, std::size_t bytes) : mesh_(mesh), data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  /// Throws Broken if the connection has ended.
  void send(int peer, std::uint64_t slot, std::size_t offset, std::size_t length);
  void recv(int peer, std::uint64_t slot, std::size_t offset, std::size_t length);

  using Delivery::receives, Delivery::sends;
  bool received() const { return receives() > 0; }
  bool sent() const { return sends() > 0; }
  /// Waits until `count` messages are complete, for at most `patience`.
  void wait_for_sends(std::size_t count, std::chrono::microseconds patience) const;
  void wait_for_receives(std::size_t count, std::chrono::microseconds patience) const;

 private:
  Connection& connection(int peer, std::size_t offset, std::size_t length);

  Mesh& mesh_;
  std::byte* data_;
  std::size_t bytes_, posted_ = 0;
};

class Mesh {
 public:
  /// Over connections that are proved already, one to each other rank (comm/store/links.hpp). Throws StoreError if the system has
  /// no descriptor or thread left.
  Mesh(int rank, std::vector<store::Link> links);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh();

  int rank() const { return rank_; }
  int size() const { return int(connections_.size()); }
  /// Whether bytes that are no valid frame have ended a connection.
  bool disturbed() const { return signal_.disturbed(); }
  std::unique_ptr<Buffer> buffer(void* data, std::size_t bytes) { return std::make_unique<Buffer>(*this, data, bytes); }
  std::uint64_t next_payload() { return reserve_payloads(1); }
  /// The first of `count` new payload numbers.
  std::uint64_t reserve_payloads(std::uint64_t count) { return std::exchange(payloads_, payloads_ + count); }

 private:
  friend class Buffer;
  void run() noexcept;
  void fail(const char* why) noexcept;

  const int rank_, process_;
  store::Socket epoll_, bell_;
  Signal signal_;
  std::vector<std::unique_ptr<Connection>> connections_;  // null: this rank
  std::uint64_t payloads_ = 1;
  std::thread loop_;
};

}  // namespace weft::comm::tcp

#ifndef WEFT_COMPILED
#include <weft/comm/tcp/full_mesh_impl.hpp>
#endif
