// SPDX-License-Identifier: Apache-2.0
#pragma once
// Long messages between two ranks whose sender's bytes lie in its heap: the envelope says where, the receiver copies them, and a
// word back ends the message for the sender.
//
// A sender that gives up counts that in its heap, at a word of the message, before it uses the bytes for something else. The
// receiver compares the count after the copy, so that it never delivers other bytes.

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
  std::uint64_t at = nowhere;
  std::uint64_t word = 0, given_up = 0;  ///< the place of the message's count, and the count when it was sent
  explicit operator bool() const { return at != nowhere; }
};

/// Bytes at the beginning of each heap that belong to no block: the number of messages, and 511 counts, which messages use by
/// turns.
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
    if (closed_) return {};
    const std::uint64_t number = 1 + counter(rank_, 0).fetch_add(1, std::memory_order_relaxed) % (words - 1);
    return {at - begin, number, counter(rank_, number).load(std::memory_order_relaxed)};
  }
  /// Copies the bytes of rank `from`. False if they are there no more.
  bool copy(int from, const HeapPlace& place, void* to, std::size_t bytes) const {
    if (heaps_.empty()) return false;
    const std::span<std::byte> heap = heaps_[std::size_t(from)];
    if (place.at > heap.size() || bytes > heap.size() - place.at || place.word == 0 || place.word >= words) return false;
    std::memcpy(to, heap.data() + place.at, bytes);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return counter(from, place.word).load(std::memory_order_seq_cst) == place.given_up;
  }
  /// Called before a sender uses the bytes of a message that it has given up. The group offers no more: a late answer to this
  /// message must not end another.
  void give_up(const HeapPlace& place) const {
    closed_ = true;
    counter(rank_, place.word).fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  static constexpr std::uint64_t words = heap_head / sizeof(std::uint64_t);
  std::atomic<std::uint64_t>& counter(int rank, std::uint64_t word) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(heaps_[std::size_t(rank)].data())[word];
  }

  std::vector<std::span<std::byte>> heaps_;
  int rank_ = 0;
  mutable bool closed_ = false;
  std::shared_ptr<const void> owner_;
};

}  // namespace weft::comm::shared_memory
