// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layout of a group's shared memory. Collectives are cut into rounds, whose numbers continue from one collective to the next
// and are the same on all ranks. In a round a rank writes one of its slots and posts it; the others read it and report how far
// they are. A slot is written again once all have finished with its content.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <weft/core/standard.hpp>

namespace weft::comm::shared_memory {

inline constexpr int most_ranks = 128;

class Slots {
 public:
  static constexpr std::size_t depth = 4;  ///< slots of a rank: the rounds that it may be ahead of another rank

  /// The description that a rank posts before its bytes.
  struct alignas(64) Header {
    std::atomic<std::uint64_t> posted;  ///< the number of the round
    std::uint64_t signature, count;
    std::uint64_t detail;         ///< of operations with counts: a hash of them, or the rounds that the rank needs
    std::uint64_t input, output;  ///< places in the rank's heap, if the others may read there
  };

  Slots(std::byte* memory, int rank, int size) : memory_(memory), rank_(rank), size_(size), bytes_(bytes_for(size)) {}

  /// The bytes of one slot: long enough that a round costs more to copy than to announce, measured for 16 to 128 KiB.
  static std::size_t bytes_for(int size) { return std::max<std::size_t>(64 * std::size_t(size), size <= 8 ? 131072 : 32768); }
  static std::size_t total(int size) { return std::size_t(size) * of_rank(bytes_for(size)); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t bytes() const { return bytes_; }
  Header& header(int rank, std::uint64_t round) const {
    return *reinterpret_cast<Header*>(memory_ + std::size_t(rank) * of_rank(bytes_) + line + round % depth * (line + bytes_));
  }
  std::byte* data(int rank, std::uint64_t round) const { return reinterpret_cast<std::byte*>(&header(rank, round)) + line; }
  // A rank that waits for a post or for a free slot looks once more after it has announced its sleep (doorbell.hpp), and a rank
  // that posts looks at the doorbells after it has posted: all of it is seq_cst, or both could miss each other.
  bool posted(int rank, std::uint64_t round) const { return header(rank, round).posted.load(std::memory_order_seq_cst) == round; }
  void post(std::uint64_t round) { header(rank_, round).posted.exchange(round, std::memory_order_seq_cst); }

  /// True if all ranks have finished with the content of this rank's slot for `round`.
  bool free(std::uint64_t round) {
    if (round <= known_ + depth) return true;
    std::uint64_t least = round;
    for (int q = 0; q < size_; ++q)
      if (q != rank_) least = std::min(least, done(q).load(std::memory_order_seq_cst));
    known_ = least;
    return round <= known_ + depth;
  }
  /// Reports that this rank has finished reading all rounds up to this one.
  void mark_read(std::uint64_t round) { done(rank_).exchange(round, std::memory_order_seq_cst); }

  // A rank that enters stores `inside` and then loads the others' `left`; one that leaves stores `left` and then loads `inside`.
  // All are seq_cst, so that one of the two sees the other.

  /// Begins the use of the others' heaps. Returns a rank that has left its operation, whose heap may hold anything, or -1.
  int enter() {
    inside(rank_).exchange(1, std::memory_order_seq_cst);
    for (int q = 0; q < size_; ++q)
      if (q != rank_ && left(q).load(std::memory_order_seq_cst) != 0) return depart(), q;
    return -1;
  }
  void depart() { inside(rank_).store(0, std::memory_order_release); }
  /// Reports that this rank has given up an operation. Its heap belongs to it again once no other rank `uses_heaps`.
  void leave() { left(rank_).exchange(1, std::memory_order_seq_cst); }
  bool uses_heaps(int q) const { return inside(q).load(std::memory_order_seq_cst) != 0; }

 private:
  static constexpr std::size_t line = sizeof(Header);
  static std::size_t of_rank(std::size_t bytes) { return (line + depth * (line + bytes) + 127) / 128 * 128 + 128; }
  std::atomic<std::uint64_t>& done(int rank) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(memory_ + std::size_t(rank) * of_rank(bytes_));
  }
  std::atomic<std::uint64_t>& left(int rank) const { return (&done(rank))[1]; }
  std::atomic<std::uint64_t>& inside(int rank) const { return (&done(rank))[2]; }

  std::byte* memory_;
  int rank_, size_;
  std::size_t bytes_;
  std::uint64_t known_ = 0;  // rounds that all ranks have finished
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(Slots::Header) == 64);

}  // namespace weft::comm::shared_memory
