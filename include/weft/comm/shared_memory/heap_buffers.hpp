// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks' buffers of one collective, if they lie in the ranks' heaps, and one rank's share of the work on them: what
// comm/threads/exchange.hpp does between threads.
//
//   all_reduce        each rank reduces its part of all inputs into all outputs
//   all others        each rank reads what it needs

#include <cstddef>
#include <cstdint>
#include <span>

#include <weft/comm/operation.hpp>
#include <weft/comm/shared_memory/call_ranges.hpp>
#include <weft/comm/shared_memory/slots.hpp>

namespace weft::comm::shared_memory {

/// Messages of at least this many bytes stay in the heaps: shorter ones cost less through a slot than another round.
inline constexpr std::size_t heap_bytes = 16384;

class HeapBuffers {
 public:
  /// `heaps`: the ranks' heaps as they lie in this process; empty if they are not shared.
  HeapBuffers(Slots& slots, const Call& call, std::span<const std::span<std::byte>> heaps)
      : slots_(slots), call_(call), heaps_(heaps) {}

  /// Whether messages of `bytes` bytes may stay in the heaps. The same on all ranks.
  bool serve(std::size_t bytes) const { return !heaps_.empty() && bytes >= heap_bytes; }
  /// Writes the places of this rank's buffers.
  void offer(Slots::Header& header) const;
  /// Whether every rank has offered, in the round `first`. The same on all ranks.
  bool all_offer(std::uint64_t first) const;
  /// Does this rank's share. Returns a rank that has given up, so that nothing was done, or -1.
  int use(std::uint64_t first);

 private:
  int size() const { return slots_.size(); }
  int me() const { return slots_.rank(); }
  std::size_t element() const { return size_of(call_.type); }
  std::byte* output() const { return static_cast<std::byte*>(call_.output); }
  std::size_t sent_by(int q, int to, std::uint64_t first) const;
  std::size_t input_bytes(int q, std::uint64_t first) const;
  const std::byte* input_of(int q, std::uint64_t first) const {
    if (q == me()) return static_cast<const std::byte*>(call_.input);
    return heaps_[std::size_t(q)].data() + slots_.header(q, first).input;
  }
  void share(std::uint64_t first);

  Slots& slots_;
  const Call& call_;
  std::span<const std::span<std::byte>> heaps_;
};

}  // namespace weft::comm::shared_memory

#ifndef WEFT_COMPILED
#include <weft/comm/shared_memory/heap_buffers_impl.hpp>
#endif
