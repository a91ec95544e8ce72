// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank's part in one collective of processes. Sums are formed in rank order (comm/reduce.hpp), as on every backend.
//
// Long messages whose buffers lie in the ranks' heaps (heap.hpp) are read there. The first round carries only descriptions; if a
// buffer is in no heap, the rounds of the slots follow.
//
//   all_reduce                                           each rank reduces its part into its output; then it reads the others'
//   parts all others                                           each rank reads what it needs
//
// A last round, in which all ranks are finished with the others' buffers, ends either. No rank writes into another's heap, and
// one that gives up is found after the reads (Slots::who_left).
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
#include <vector>

#include <weft/comm/operation.hpp>
#include <weft/comm/reduce.hpp>
#include <weft/comm/shared_memory/slots.hpp>
#include <weft/comm/shared_memory/stream.hpp>

namespace weft::comm::shared_memory {

/// Messages of at least this many bytes are read in the ranks' heaps: shorter ones cost less through a slot than a round more.
inline constexpr std::size_t heap_bytes = 16384;

class Collective {
 public:
  /// `heaps`: the ranks' heaps as they lie in this process; empty if they cannot be read.
  Collective(Slots& slots, const Call& call, std::span<const std::span<const std::byte>> heaps = {})
      : slots_(slots), call_(call), heaps_(heaps) {}
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
  /// A rank that has given up while this one read its heap, or -1.
  int gone() const { return gone_; }

 private:
  struct Range {
    std::size_t begin, length;  // in bytes
  };
  int size() const { return slots_.size(); }
  int me() const { return slots_.rank(); }
  bool root() const { return call_.root == me(); }
  std::size_t element() const { return size_of(call_.type); }
  const std::byte* input() const { return static_cast<const std::byte*>(call_.input); }
  std::byte* output() const { return static_cast<std::byte*>(call_.output); }

  // ---- contents of a round -------------------------------------------------------------------------------------------
  bool to_each() const {  // a slot has one part for each other rank
    using enum Operation;
    const auto op = call_.operation;
    return op == reduce_scatter || op == reduce_scatter_v || op == scatter || op == all_to_all || op == all_to_all_v;
  }
  bool fills(std::uint64_t round) const;
  bool looks_at(int q, std::uint64_t round) const;
  std::size_t part_bytes() const { return slots_.bytes() / std::size_t(size() - 1) / 64 * 64; }
  std::size_t chunk() const { return to_each() ? part_bytes() : slots_.bytes(); }
  std::size_t part_at(int of, int to) const { return std::size_t(to < of ? to : to - 1) * part_bytes(); }
  /// The bytes of a whole message that round `round` carries.
  Range of_round(std::size_t bytes, std::uint64_t round) const {
    const std::size_t begin = std::min<std::size_t>(bytes, round * chunk());
    return {begin, std::min(chunk(), bytes - begin)};
  }
  static Range of_counts(std::span<const std::size_t> counts, int q, std::size_t element);
  /// The part of this rank's input that goes to rank q.
  Range sent(int q) const;
  /// The part of this rank's output that comes from rank q.
  Range received(int q) const;
  std::size_t own_bytes() const {
    return call_.operation == Operation::all_gather_v ? call_.receive_counts[std::size_t(me())] * element() : call_.bytes();
  }
  std::uint64_t rounds_of(std::size_t bytes) const { return (bytes + chunk() - 1) / chunk(); }

  bool fill(std::uint64_t round);
  bool fetch(std::uint64_t round);

  // ---- in the heaps --------------------------------------------------------------------------------------------------
  std::size_t input_bytes(int q) const;
  std::size_t sent_by(int q, int to) const;
  void offer(Slots::Header& header) const;
  bool all_offer() const;
  /// Reads the others' inputs, or, in the second phase of an all_reduce, their outputs.
  bool read_heaps(std::uint64_t phase);
  const std::byte* input_of(int q) const {
    return q == me() ? input() : heaps_[std::size_t(q)].data() + slots_.header(q, first_).input;
  }
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
  std::span<const std::span<const std::byte>> heaps_;
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
