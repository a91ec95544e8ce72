// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives between thread ranks. Every rank posts the addresses of its buffers in a slot of the group's ring. Once all have
// posted, each rank compares the fingerprints and does its share by reading and writing the others' memory: one pass, no
// intermediate copy. Short messages are posted with their bytes, so that a rank needs no other rank once all have posted, and may
// continue.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/comm/reduce.hpp>
#include <weft/comm/threads/world.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::threads {

/// The slots of one group of `size` ranks.
class Exchange {
 public:
  static constexpr std::size_t slots = 16;          ///< operations that a rank may be ahead of another
  static constexpr std::size_t inline_bytes = 256;  ///< messages up to this size travel in their slot

  /// The post of one rank. Other ranks read the fields before `posted` only while posted == the operation's number and done < it.
  /// `open` is the oldest operation that the rank had not finished when it posted this one.
  struct alignas(128) Entry {
    std::atomic<std::uint64_t> posted{0};
    std::uint64_t signature = 0;
    std::uint64_t count = 0;
    std::uint64_t open = 0;
    const void* input = nullptr;
    void* output = nullptr;
    const std::size_t* counts = nullptr;  // receive_counts, `size` of them
    std::atomic<std::uint64_t> done{0};
    const std::size_t* send_counts = nullptr;
  };

  explicit Exchange(int size)
      : size_(size), entries_(slots * std::size_t(size)), payload_(new std::byte[slots * std::size_t(size) * inline_bytes]) {}

  int size() const { return size_; }
  Entry& entry(std::uint64_t sequence, int rank) { return entries_[index(sequence, rank)]; }
  std::byte* payload(std::uint64_t sequence, int rank) { return payload_.get() + index(sequence, rank) * inline_bytes; }

 private:
  std::size_t index(std::uint64_t sequence, int rank) const { return sequence % slots * std::size_t(size_) + std::size_t(rank); }

  int size_;
  std::vector<Entry> entries_;
  std::unique_ptr<std::byte[]> payload_;  // pages are allocated at their first use
};

/// One rank's part in one collective.
class Collective final : public Advancing {
 public:
  Collective(World& world, Exchange& exchange, std::span<const int> members, int rank, std::uint64_t sequence, const Call& call)
      : world_(world),
        exchange_(exchange),
        members_(members),
        self_(world.rank(members[std::size_t(rank)])),
        rank_(rank),
        sequence_(sequence),
        call_(call),
        inline_(fits_inline(call, exchange.size())) {}

  const Call& call() const { return call_; }
  std::uint64_t sequence() const { return sequence_; }
  bool shared() const { return shared_; }
  /// Copies the counts of a `_v` operation, for an operation that outlives the caller's.
  void keep_counts() { counts_ = comm::keep_counts(call_); }

  void post(std::uint64_t open);

  WEFT_INLINE bool advance() override;
  WEFT_INLINE int waits_for() const override;

  Collective* next_open = nullptr;  ///< the next started operation of its group

  /// The oldest operation that some rank had not finished when it posted this one. Known once this rank has done its share.
  std::uint64_t oldest_open() const { return oldest_open_; }

 private:
  std::uint64_t read_oldest_open();
  int size() const { return exchange_.size(); }
  bool step() {
    self_.advances.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  bool all_posted() {
    for (; seen_posted_ < size(); ++seen_posted_)
      if (exchange_.entry(sequence_, seen_posted_).posted.load(std::memory_order_seq_cst) != sequence_) return false;
    return true;
  }
  bool all_done() {
    for (; seen_done_ < size(); ++seen_done_)
      if (exchange_.entry(sequence_, seen_done_).done.load(std::memory_order_seq_cst) < sequence_) return false;
    return true;
  }
  void wake_others() {
    for (int q = 0; q < size(); ++q)
      if (q != rank_) world_.wake(members_[std::size_t(q)]);
  }

  static bool fits_inline(const Call& call, int size);
  static std::size_t input_bytes(const Call& call, int size, int rank);

  /// Empty if all ranks made the same call; else names two ranks that did not, by their numbers in the world.
  std::string disagreement();
  std::string both(int a, int b, const std::string& why);

  const std::byte* input(int q) {
    return inline_ ? exchange_.payload(sequence_, q) : static_cast<const std::byte*>(exchange_.entry(sequence_, q).input);
  }
  std::byte* output(int q) { return static_cast<std::byte*>(exchange_.entry(sequence_, q).output); }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0 && to != from) std::memmove(to, from, bytes);
  }

  /// Reduces elements [begin, end) of all inputs, each starting `skip` bytes in, into the given outputs.
  void reduce_into(std::span<void* const> outputs, std::size_t begin, std::size_t end, std::size_t skip = 0);

  void share();

  World& world_;
  Exchange& exchange_;
  std::span<const int> members_;
  Rank& self_;
  int rank_;
  std::uint64_t sequence_, oldest_open_ = 0;
  Call call_;
  bool inline_, shared_ = false;
  int seen_posted_ = 0, seen_done_ = 0;
  std::unique_ptr<std::size_t[]> counts_;
};

}  // namespace weft::comm::threads

#ifndef WEFT_COMPILED
#include <weft/comm/threads/exchange_impl.hpp>
#endif
