// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's part in one collective of processes. Sums are formed in rank order (comm/reduce.hpp), as on every backend.
//
// Long messages whose buffers lie in the ranks' heaps stay there (heap_buffers.hpp). The first round carries only descriptions.
// If a buffer is in no heap, the rounds of the slots follow, else each rank does its share of the work, and a second round ends
// the operation: then all ranks are finished with the others' buffers. A rank that gives up first waits until nobody is at work
// in its heap, and is found by those that would be later (Slots::enter).
//
// Other messages go through the group's slots, in pieces that fit: while the others read one piece, the next is written.
//
//   barrier                                              one empty round
//   broadcast, scatter                                   the root writes, the others read
//   reduce, gather                                       the others write, the root reads
//   all_gather(_v), all_to_all(_v), reduce_scatter(_v)   all write, all read
//   all_reduce, short or of two ranks                    all write, all read everything and reduce it
//   all_reduce, otherwise                                rounds in pairs: inputs, of which each rank reduces its part; results
//
// The first round carries a description of each rank's call. Every rank posts its own, compares all others' with it, and writes
// no output before that: so two ranks that would only send, such as two roots of a broadcast, find each other out, too.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include <weft/comm/operation.hpp>
#include <weft/comm/reduce.hpp>
#include <weft/comm/shared_memory/call_ranges.hpp>
#include <weft/comm/shared_memory/heap_buffers.hpp>
#include <weft/comm/shared_memory/slots.hpp>
#include <weft/comm/shared_memory/stream.hpp>

namespace weft::comm::shared_memory {

class Collective {
 public:
  /// `heaps`: the ranks' heaps as they lie in this process; empty if they cannot be read.
  Collective(Slots& slots, const Call& call, std::span<const std::span<std::byte>> heaps = {})
      : slots_(slots), call_(call), ranges_(call_, slots.rank()), buffers_(slots, call_, heaps) {}
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  const Call& call() const { return call_; }
  /// Copies the counts of a `_v` operation, for an operation that outlives the caller's.
  void keep_counts() { counts_ = comm::keep_counts(call_); }

  bool begun() const { return first_ != 0; }
  void begin(std::uint64_t first);
  /// Advances as far as possible without waiting; sets `posted` if other ranks can see the progress.
  void advance(bool& posted);
  bool complete() const { return begun() && read_ == rounds_; }
  /// Not empty once a rank is found to have made another call: "rank 1 of dp called ...".
  const std::string& disagreement() const { return disagreement_; }
  /// The number of the round after the last one of this operation.
  std::uint64_t end() const { return first_ + rounds_; }
  /// A rank of the group whose post is missing, or -1.
  int missing() const;
  /// A rank that has given up, so that its heap may not be used, or -1.
  int gone() const { return gone_; }

 private:
  using Range = CallRanges::Range;
  int size() const { return slots_.size(); }
  int me() const { return slots_.rank(); }
  bool root() const { return call_.root == me(); }
  std::size_t element() const { return size_of(call_.type); }
  const std::byte* input() const { return static_cast<const std::byte*>(call_.input); }
  std::byte* output() const { return static_cast<std::byte*>(call_.output); }

  // ---- contents of a round -------------------------------------------------------------------------------------------
  bool fills(std::uint64_t round) const;
  bool looks_at(int q, std::uint64_t round) const;
  std::size_t part_bytes() const { return slots_.bytes() / std::size_t(size() - 1) / 64 * 64; }
  std::size_t chunk() const { return ranges_.to_each() ? part_bytes() : slots_.bytes(); }
  std::size_t part_at(int of, int to) const { return std::size_t(to < of ? to : to - 1) * part_bytes(); }
  /// The bytes of a whole message that round `round` carries.
  Range of_round(std::size_t bytes, std::uint64_t round) const {
    const std::size_t begin = std::min<std::size_t>(bytes, round * chunk());
    return {begin, std::min(chunk(), bytes - begin)};
  }
  std::uint64_t rounds_of(std::size_t bytes) const { return (bytes + chunk() - 1) / chunk(); }

  bool fill(std::uint64_t round);
  bool fetch(std::uint64_t round);
  bool all_posted(std::uint64_t round);
  bool agree();
  void disagree(int q, const std::string& why = {});
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0 && to != from) std::memmove(to, from, bytes);
  }
  /// Copies into this rank's slot, for others to read.
  void hand_out(std::byte* to, const void* from, std::size_t bytes) const {
    if (bytes == 0) return;
    if (streams_) streaming_copy(to, from, bytes);
    else std::memcpy(to, from, bytes);
  }
  /// Reduces `bytes` bytes of every rank's data in this round, in rank order, into the outputs. `own` is this rank's data, `skip`
  /// the offset in the other ranks' slots.
  void reduce_slots(std::uint64_t round, const std::byte* own, std::size_t skip, std::size_t bytes,
                    std::span<void* const> outputs);

  Slots& slots_;
  Call call_;
  CallRanges ranges_;
  HeapBuffers buffers_;
  bool paired_ = false, streams_ = false, in_heaps_ = false;
  int seen_ = 0, gone_ = -1;
  std::uint64_t first_ = 0, rounds_ = 1, written_ = 0, read_ = 0, detail_ = 0;
  std::uint64_t descriptions_ = 0;  // rounds without bytes, before the others: 0 or 1
  std::unique_ptr<std::size_t[]> counts_;
  std::string disagreement_;
};

}  // namespace weft::comm::shared_memory

#ifndef WEFT_COMPILED
#include <weft/comm/shared_memory/collective_impl.hpp>
#endif
