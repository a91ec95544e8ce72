// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention over sequences in zig-zag chunks on the ranks of cp: blocks of keys and values are passed around a ring, and are sent
// on while they are used (ring attention, arXiv:2310.01889). Key-value heads are not repeated for their query heads. All ranks
// have the same work in each step. Step 0 is causal over the rank's own chunks. Later steps need no mask, since either all
// queries attend to the first half of the keys, or the second half of the queries to all keys.
//
//   ring_attention_forward(device, context.comm(cp{}), extents, in, out, log_sum_exp);
//
// Numerics: block results and all gradients are in accumulate_t and are rounded once.

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include <weft/comm/ring.hpp>
#include <weft/kernels/attention.hpp>
#include <weft/kernels/attention_merge.hpp>
#include <weft/kernels/move_rows.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// The extents of one rank's part: `length` tokens of each sequence.
using kernels::AttentionExtents;
template <class T>
using Operands = kernels::AttentionOperands<T>;

/// A part of a step's work: several sequences, or some heads of one sequence.
struct RingPiece {
  std::size_t sequence, sequences, kv_head, kv_heads;
};

/// A rank's work in one step: its queries from `first` on, with the received keys.
struct RingPart {
  kernels::AttentionBlock block;
  std::size_t first;
  RingPart(const AttentionExtents& e, int step, int rank, bool causal)
      : block{.sequences = e.sequences,
              .queries = step <= rank || !causal ? e.length : e.length / 2,
              .keys = step == 0 || step > rank || !causal ? e.length : e.length / 2,
              .query_step = e.length,
              .key_step = e.length,
              .statistic_step = e.length,
              .heads = e.heads,
              .kv_heads = e.kv_heads,
              .head_width = e.head_width,
              .causal = causal && step == 0},
        first(step <= rank || !causal ? 0 : e.length / 2) {}

  /// The block of a piece; `ranges`: those of the whole part, or null.
  kernels::AttentionBlock block_of(const RingPiece& piece, const AttentionExtents& e, const kernels::KeyRanges& ranges) const {
    kernels::AttentionBlock one = block;
    one.sequences = piece.sequences, one.heads = piece.kv_heads * e.group(), one.kv_heads = piece.kv_heads;
    if (ranges.first) one.ranges = {ranges.first + piece.sequence * one.queries, ranges.end + piece.sequence * one.queries};
    return one;
  }
};

/// The mask of a ring: the pattern, and the documents of whole sequences or null.
struct RingMask {
  AttentionMask pattern = {};
  const std::int32_t* documents = nullptr;

  /// The ranges of keys for a step's queries, in `memory`; empty if the step's part needs no mask.
  template <class Exec>
  kernels::KeyRanges ranges(Device<Exec>& device, const AttentionExtents& e, const Communicator& comm, int step,
                            const RingPart& at, Buffer& memory) const {
    if (pattern.window == 0 && documents == nullptr) return {};
    const std::size_t rows = at.block.sequences * at.block.queries, ranks = std::size_t(comm.size()),
                      rank = std::size_t(comm.rank()), length = e.length * ranks;
    memory = device.allocate(2 * rows * sizeof(std::int32_t));
    const kernels::KeyRanges ranges{static_cast<std::int32_t*>(memory.get()), static_cast<std::int32_t*>(memory.get()) + rows};
    const kernels::MaskedBlock block{.sequences = at.block.sequences,
                                     .queries = {length, ranks, rank},
                                     .first_query = at.first,
                                     .query_count = at.block.queries,
                                     .keys = {length, ranks, (rank + ranks - std::size_t(step)) % ranks},
                                     .key_count = at.block.keys};
    kernels::find_key_ranges(device, pattern, documents, block, ranges);
    return ranges;
  }
};

/// Calls f for the pieces of a step; messages advance between pieces. Each piece is large enough for all threads.
template <class Exec, class F>
void for_each_piece(Device<Exec>& device, const AttentionExtents& e, F&& f) {
  const std::size_t threads = std::size_t(device.threads());
  const bool by_heads = e.sequences == 1;
  const std::size_t all = by_heads ? e.kv_heads : e.sequences,
                    busy = by_heads ? threads : (threads + e.kv_heads - 1) / e.kv_heads;
  const std::size_t each = std::max(busy, (all + 3) / 4);
  for (std::size_t first = 0; first < all; first += each) {
    const std::size_t count = std::min(each, all - first);
    f(by_heads ? RingPiece{0, 1, first, count} : RingPiece{first, count, 0, e.kv_heads});
  }
}

/// Keys and values of this rank in one tensor, [rows, 2 kv_width], for one message.
template <class T, class Exec>
Tensor<T, Exec> packed_keys(Device<Exec>& device, const AttentionExtents& e, const Operands<const T>& in) {
  Tensor<T, Exec> packed(device, {e.rows(), 2 * e.kv_width()});
  kernels::cast_rows(device, e.rows(), e.kv_width(), in.k, in.k_stride, packed.data(), packed.columns());
  kernels::cast_rows(device, e.rows(), e.kv_width(), in.v, in.v_stride, packed.data() + e.kv_width(), packed.columns());
  return packed;
}

template <class X>
auto span_of(const X& x) {
  return std::span<typename X::value_type>(x.data(), x.size());
}

/// out [rows, width], lse [sequences, heads, length]. Collective over comm.
template <class T, class Exec>
void ring_attention_forward(Device<Exec>& device, const Communicator& comm, const AttentionExtents& e,
                            const Operands<const T>& in, T* out, accumulate_t<T>* lse, const RingMask& mask = {}) {
  using A = accumulate_t<T>;
  const bool alone = comm.size() == 1;
  const Tensor<T, Exec> piece = packed_keys<T>(device, e, in), spare(device, alone ? Shape{0} : piece.shape());
  const Tensor<A, Exec> part(device, alone ? Shape{0} : Shape{e.rows(), e.width()}),
      part_lse(device, alone ? Shape{0} : Shape{e.sequences, e.heads, e.length});
  Tensor<A, Exec> whole;
  A* total = nullptr;
  if constexpr (std::is_same_v<T, A>) total = out;
  else {
    whole = Tensor<A, Exec>(device, {e.rows(), e.width()});
    total = whole.data();
  }
  comm::ring_exchange(comm, span_of(piece), span_of(spare), [&](int step, std::span<T> kv, auto&& progress) {
    const RingPart at(e, step, comm.rank(), mask.pattern.causal);
    Buffer memory;
    const kernels::KeyRanges ranges = mask.ranges(device, e, comm, step, at, memory);
    A *const result = (step == 0 ? total : part.data()) + at.first * e.width(), *const statistic =
                                                                                    (step == 0 ? lse : part_lse.data()) +
                                                                                    at.first;
    for_each_piece(device, e, [&](const RingPiece& work) {
      const kernels::AttentionBlock block = at.block_of(work, e, ranges);
      const std::size_t row = work.sequence * e.length, head = work.kv_head * e.group(), column = head * e.head_width;
      const T* const keys = kv.data() + row * 2 * e.kv_width() + work.kv_head * e.head_width;
      kernels::attention_block_forward<T>(device, block,
                                          {.q = in.q + (row + at.first) * in.q_stride + column,
                                           .k = keys,
                                           .v = keys + e.kv_width(),
                                           .q_stride = in.q_stride,
                                           .k_stride = 2 * e.kv_width(),
                                           .v_stride = 2 * e.kv_width()},
                                          kernels::StridedRows{result + row * e.width() + column, e.width()},
                                          statistic + (work.sequence * e.heads + head) * e.length);
      progress();
    });
    if (step != 0)
      kernels::merge_attention<A>(device, at.block, result, statistic, {total + at.first * e.width(), e.width()}, lse + at.first);
  });
  if constexpr (!std::is_same_v<T, A>) kernels::cast_rows(device, e.rows(), e.width(), total, e.width(), out, e.width());
}

/// `d`: the gradients of `in`. out, d_out [rows, width] and lse are those of the whole attention. Collective over comm.
template <class T, class Exec>
void ring_attention_backward(Device<Exec>& device, const Communicator& comm, const AttentionExtents& e,
                             const Operands<const T>& in, const T* out, const T* d_out, const accumulate_t<T>* lse,
                             const Operands<T>& d, const RingMask& mask = {}) {
  using A = accumulate_t<T>;
  const bool alone = comm.size() == 1;
  const std::size_t kv_stride = 2 * e.kv_width();
  const Tensor<T, Exec> piece = packed_keys<T>(device, e, in), spare(device, alone ? Shape{0} : piece.shape());
  const Tensor<A, Exec> sum(device, piece.shape()), arriving(device, alone ? Shape{0} : piece.shape()),
      part(device, alone ? Shape{0} : piece.shape());
  const Tensor<A, Exec> dq(device, {e.rows(), e.width()}), dq_part(device, alone ? Shape{0} : dq.shape());
  const auto compute = [&](int step, std::span<T> kv, auto&& progress) {
    const RingPart at(e, step, comm.rank(), mask.pattern.causal);
    Buffer memory;
    const kernels::KeyRanges ranges = mask.ranges(device, e, comm, step, at, memory);
    A *const dq_here = (step == 0 ? dq : dq_part).data() + at.first * e.width(), *const d_keys = (step == 0 ? sum : part).data();
    for_each_piece(device, e, [&](const RingPiece& work) {
      const kernels::AttentionBlock block = at.block_of(work, e, ranges);
      const std::size_t row = work.sequence * e.length, head = work.kv_head * e.group(), column = head * e.head_width;
      const std::size_t query = (row + at.first) * e.width() + column, key = row * kv_stride + work.kv_head * e.head_width;
      const T* const keys = kv.data() + key;
      A* const d_here = d_keys + key;
      kernels::attention_block_backward<T>(device, block,
                                           {.q = in.q + (row + at.first) * in.q_stride + column,
                                            .k = keys,
                                            .v = keys + e.kv_width(),
                                            .q_stride = in.q_stride,
                                            .k_stride = kv_stride,
                                            .v_stride = kv_stride},
                                           {out + query, e.width()}, {d_out + query, e.width()},
                                           lse + (work.sequence * e.heads + head) * e.length + at.first,
                                           kernels::AttentionOperands<A>{.q = dq_here + row * e.width() + column,
                                                                         .k = d_here,
                                                                         .v = d_here + e.kv_width(),
                                                                         .q_stride = e.width(),
                                                                         .k_stride = kv_stride,
                                                                         .v_stride = kv_stride});
      progress();
    });
    if (step != 0)
      kernels::add_rows(device, e.sequences, at.block.queries, e.length, e.width(), dq_here, dq.data() + at.first * e.width());
  };
  const auto add = [&](int step, std::span<A> total) {
    const RingPart at(e, step, comm.rank(), mask.pattern.causal);
    if (step != 0) kernels::add_rows(device, e.sequences, at.block.keys, e.length, kv_stride, part.data(), total.data());
  };
  const std::span<A> dkv =
      comm::ring_exchange(comm, span_of(piece), span_of(spare), span_of(sum), span_of(arriving), compute, add);
  kernels::cast_rows(device, e.rows(), e.width(), dq.data(), e.width(), d.q, d.q_stride);
  kernels::cast_rows(device, e.rows(), e.kv_width(), dkv.data(), kv_stride, d.k, d.k_stride);
  kernels::cast_rows(device, e.rows(), e.kv_width(), dkv.data() + e.kv_width(), kv_stride, d.v, d.v_stride);
}

}  // namespace weft::detail
