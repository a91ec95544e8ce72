// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for comm/shared_memory/heap_buffers.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <algorithm>
#include <cstring>

#include <weft/comm/reduce.hpp>
#include <weft/comm/shared_memory/heap_buffers.hpp>
#include <weft/core/inline.hpp>

namespace weft::comm::shared_memory {

/// Elements that rank q sends to rank `to` in an all_to_all_v, which every rank has in its first slot.
WEFT_INLINE std::size_t HeapBuffers::sent_by(int q, int to, std::uint64_t first) const {
  if (q == me()) return call_.send_counts[std::size_t(to)];
  std::size_t count = 0;
  std::memcpy(&count, slots_.data(q, first) + std::size_t(to) * sizeof count, sizeof count);
  return count;
}

/// The bytes that the others may read at rank q's input.
WEFT_INLINE std::size_t HeapBuffers::input_bytes(int q, std::uint64_t first) const {
  using enum Operation;
  std::size_t elements = 0;
  switch (call_.operation) {
    case broadcast: return q == call_.root ? call_.bytes() : 0;
    case scatter: return q == call_.root ? call_.bytes() * std::size_t(size()) : 0;
    case reduce_scatter:
    case all_to_all: return call_.bytes() * std::size_t(size());
    case all_gather_v: return call_.receive_counts[std::size_t(q)] * element();
    case reduce_scatter_v:
      for (const std::size_t count : call_.receive_counts) elements += count;
      return elements * element();
    case all_to_all_v:
      for (int to = 0; to < size(); ++to) elements += std::min(sent_by(q, to, first), std::size_t(1) << 48);
      return elements * element();
    default: return call_.bytes();
  }
}

WEFT_INLINE void HeapBuffers::offer(Slots::Header& header) const {
  constexpr std::uint64_t nowhere = ~std::uint64_t(0);
  const auto place_of = [&](const void* data, std::size_t bytes) -> std::uint64_t {
    if (bytes == 0) return 0;
    if (heaps_.empty()) return nowhere;
    const std::span<std::byte> heap = heaps_[std::size_t(me())];
    const auto begin = reinterpret_cast<std::uintptr_t>(heap.data()), at = reinterpret_cast<std::uintptr_t>(data);
    return at >= begin && at - begin <= heap.size() && bytes <= heap.size() - (at - begin) ? at - begin : nowhere;
  };
  header.input = place_of(call_.input, input_bytes(me(), 0));
  header.output = call_.operation == Operation::all_reduce ? place_of(call_.output, call_.bytes()) : 0;
}

WEFT_INLINE bool HeapBuffers::all_offer(std::uint64_t first) const {
  if (heaps_.empty()) return false;  // an all_to_all_v, which describes itself first in any case
  for (int q = 0; q < size(); ++q) {
    const auto& header = slots_.header(q, first);
    const std::size_t heap = heaps_[std::size_t(q)].size(), bytes = input_bytes(q, first);
    const auto lies = [&](std::uint64_t place, std::size_t length) { return place <= heap && length <= heap - place; };
    if (!lies(header.input, bytes)) return false;
    if (call_.operation == Operation::all_reduce && !lies(header.output, bytes)) return false;
  }
  return true;
}

WEFT_INLINE int HeapBuffers::use(std::uint64_t first) {
  const int gone = slots_.enter();
  if (gone >= 0) return gone;
  share(first);
  slots_.depart();
  return -1;
}

WEFT_INLINE void HeapBuffers::share(std::uint64_t first) {
  using enum Operation;
  const auto sum = [&](std::span<void* const> outputs, std::size_t begin, std::size_t end, std::size_t skip) {
    const void* inputs[most_ranks];
    for (int q = 0; q < size(); ++q) inputs[q] = input_of(q, first) + skip;
    call_.combine(call_.reduction, {inputs, std::size_t(size())}, outputs, begin, end);
  };
  void* const mine[] = {output()};
  const CallRanges ranges(call_, me());
  const bool root = call_.root == me();
  const auto copy = [](void* to, const void* from, std::size_t bytes) {
    if (bytes != 0 && to != from) std::memmove(to, from, bytes);
  };
  const auto from_each = [&](const auto& begins) {
    for (int k = 0; k < size(); ++k) {
      const int q = (me() + k) % size();  // not all from the same rank at once
      copy(output() + ranges.received(q).begin, input_of(q, first) + begins(q), ranges.received(q).length);
    }
  };
  switch (call_.operation) {
    case all_reduce: {
      void* outputs[most_ranks];
      for (int q = 0; q < size(); ++q)
        outputs[q] = q == me() ? output() : heaps_[std::size_t(q)].data() + slots_.header(q, first).output;
      const Piece piece = piece_of(call_.count, element(), me(), size());
      sum({outputs, std::size_t(size())}, piece.begin, piece.end, 0);
      break;
    }
    case reduce:
      if (root) sum(mine, 0, call_.count, 0);
      break;
    case reduce_scatter:
    case reduce_scatter_v: sum(mine, 0, ranges.sent(me()).length / element(), ranges.sent(me()).begin); break;
    case broadcast:
      if (!root) copy(output(), input_of(call_.root, first), call_.bytes());
      break;
    case scatter: copy(output(), input_of(call_.root, first) + std::size_t(me()) * call_.bytes(), call_.bytes()); break;
    case gather:
      if (!root) break;
      [[fallthrough]];
    case all_gather:
    case all_gather_v: from_each([](int) { return std::size_t(0); }); break;
    case all_to_all: from_each([&](int) { return std::size_t(me()) * call_.bytes(); }); break;
    case all_to_all_v:
      from_each([&](int q) {
        std::size_t before = 0;
        for (int to = 0; to < me(); ++to) before += sent_by(q, to, first);
        return before * element();
      });
      break;
    case barrier:
    case split:
    case send:
    case recv: break;
  }
}

}  // namespace weft::comm::shared_memory
