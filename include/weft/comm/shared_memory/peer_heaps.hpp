// SPDX-License-Identifier: Apache-2.0
#pragma once
// Long messages between two ranks whose sender's bytes lie in its heap: the envelope says where, the receiver copies them, and a
// word back ends the message for the sender.
//
// A sender that gives up counts that in its heap before it uses the bytes for something else. The receiver compares the count
// after the copy, so that it never delivers other bytes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::comm::shared_memory {

/// The place of a message's bytes, as an envelope carries it.
struct HeapPlace {
  static constexpr std::uint64_t nowhere = ~std::uint64_t(0);
  std::uint64_t at = nowhere, given_up = 0;
  explicit operator bool() const { return at != nowhere; }
};

/// Bytes at the beginning of each heap that belong to no block.
inline constexpr std::size_t heap_head = 4096;

class PeerHeaps {
 public:
  /// Messages of at least this many bytes are copied by the receiver. No backend sends as many before the receiver has come.
  static constexpr std::size_t least = 65536;

  PeerHeaps() = default;
  /// The heaps of a group's ranks as they lie in this process. `owner` keeps them there.
  PeerHeaps(std::vector<std::span<std::byte>> heaps, int rank, std::shared_ptr<const void> owner)
      : heaps_(std::move(heaps)), rank_(rank), owner_(std::move(owner)) {}

  HeapPlace offer(const void* data, std::size_t bytes) const {
    if (heaps_.empty() || bytes < least) return {};
    const std::span<std::byte> heap = heaps_[std::size_t(rank_)];
    const auto begin = reinterpret_cast<std::uintptr_t>(heap.data()), at = reinterpret_cast<std::uintptr_t>(data);
    if (at < begin || at - begin > heap.size() || bytes > heap.size() - (at - begin)) return {};
    return {at - begin, given_up(rank_).load(std::memory_order_relaxed)};
  }
  /// Copies the bytes of rank `from`. False if they are there no more.
  bool copy(int from, const HeapPlace& place, void* to, std::size_t bytes) const {
    if (heaps_.empty()) return false;
    const std::span<std::byte> heap = heaps_[std::size_t(from)];
    if (place.at > heap.size() || bytes > heap.size() - place.at) return false;
    std::memcpy(to, heap.data() + place.at, bytes);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return given_up(from).load(std::memory_order_seq_cst) == place.given_up;
  }
  /// Called before a sender uses the bytes of a message that it has given up.
  void give_up() const { given_up(rank_).fetch_add(1, std::memory_order_seq_cst); }

 private:
  std::atomic<std::uint64_t>& given_up(int rank) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(heaps_[std::size_t(rank)].data());
  }

  std::vector<std::span<std::byte>> heaps_;
  int rank_ = 0;
  std::shared_ptr<const void> owner_;
};

}  // namespace weft::comm::shared_memory
