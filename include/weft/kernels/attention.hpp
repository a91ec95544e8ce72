// SPDX-License-Identifier: Apache-2.0
#pragma once
// Softmax attention under a mask (causal by default), multi-head or grouped-query, without the matrix of probabilities. The
// forward keeps one log-sum-exp per row; the backward recomputes the probabilities (FlashAttention-2, Dao 2023).
//
//   const kernels::AttentionExtents extents{.sequences = 2, .length = 64, .heads = 4, .kv_heads = 2, .head_width = 32};
//   kernels::attention_forward(device, extents, in, {out, extents.width()}, lse);
//
// A row is a token; there are sequences * length rows. Row r of q has heads * head_width values starting at q + r * q_stride;
// rows of k and v have kv_heads * head_width values, so q, k and v may be slices of one array. Head h reads key-value head h /
// (heads / kv_heads). Scores are scaled by 1 / sqrt(head_width).

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/attention_arguments.hpp>
#include <weft/kernels/attention_mask.hpp>
#include <weft/kernels/detail/attention_by_rows.hpp>
#include <weft/kernels/detail/attention_fused.hpp>
#include <weft/kernels/detail/attention_host.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

namespace detail {

/// The shape of a call with its ranges of keys, stored in `memory`. Patterns that need no ranges (causal and full) leave it
/// empty.
template <class Exec, class A>
AttentionShape masked_shape(Device<Exec>& device, AttentionShape shape, const AttentionMask& mask, const MaskArrays<A>& arrays,
                            weft::detail::Buffer& memory) {
  const bool given = arrays.visible != nullptr || arrays.added != nullptr;
  if (mask.window == 0 && arrays.documents == nullptr && !given) return shape;
  const std::size_t rows = shape.sequences * shape.length;
  memory = device.allocate(2 * rows * sizeof(std::int32_t));
  const KeyRanges ranges{static_cast<std::int32_t*>(memory.get()), static_cast<std::int32_t*>(memory.get()) + rows};
  const MaskedBlock block{.sequences = shape.sequences,
                          .queries = {.length = shape.length},
                          .query_count = shape.length,
                          .keys = {.length = shape.keys},
                          .key_count = shape.keys};
  find_key_ranges(device, mask, arrays.documents, block, ranges);
  shape.mask = {.first_key = ranges.first,
                .end_key = ranges.end,
                .visible = arrays.visible,
                .added = arrays.added,
                .sequence_step = arrays.sequence_step,
                .head_step = arrays.head_step,
                .query_step = arrays.query_step,
                .group = arrays.group,
                .member_step = arrays.member_step};
  return shape;
}

// Notes `products` products of queries with keys or values. A mask's ranges are values, which a rehearsal does not have. It
// counts all pairs, or half of them if attention is causal.
template <class T, class Exec>
void note_attention(Device<Exec>& device, const AttentionShape& s, int products) {
  if (Rehearsal* const notes = device.notes(); notes != nullptr) [[unlikely]]
    notes->attention(products, double(s.sequences) * double(s.heads) * double(s.length) * double(s.keys) * (s.causal ? 0.5 : 1.0),
                     double(s.head_width), data_type_of<T>);
}

}  // namespace detail

/// out[r, h] = softmax(q k^T / sqrt(head_width)) v over the keys that `mask` and `arrays` allow; lse [sequences, heads, length]
/// receives log(sum(exp(scores))) in accumulate_t<T>. A query without keys gets 0 and -infinity. Throws ShapeError if kv_heads
/// does not divide heads. The same bits for any number of threads, and for masks that allow the same keys. On a batch-invariant
/// device (NumericsOptions) each row has the bits of cached_attention; throws UsageError there for masks in arrays.
template <class T, class Exec>
void attention_forward(Device<Exec>& device, const AttentionExtents& extents, const AttentionOperands<const T>& in,
                       StridedRows<T> out, accumulate_t<T>* lse, const AttentionMask& mask = {},
                       const MaskArrays<accumulate_t<T>>& arrays = {}) {
  weft::detail::Buffer ranges;
  const auto shape = detail::masked_shape(device, detail::AttentionShape(extents, mask.causal), mask, arrays, ranges);
  detail::note_attention<T>(device, shape, 2);
  const weft::detail::TracedWhole whole(device.trace());
  if constexpr (detail::on_host<Exec>) {
    if (device.batch_invariant()) detail::attention_by_rows(device, shape, in, out, lse);
    else detail::attention_host_forward(device, shape, in, out, lse);
  } else {
    detail::attention_device_forward(device, shape, in, out, lse);
  }
}

/// Computes `d` (dq, dk and dv) from d_out and the forward's out, lse and mask. The gradients are overwritten, not added to; they
/// may be slices of one array, but not the arrays of q, k and v. The same bits for any number of threads.
template <class T, class Exec>
void attention_backward(Device<Exec>& device, const AttentionExtents& extents, const AttentionOperands<const T>& in,
                        StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                        const AttentionOperands<T>& d, const AttentionMask& mask = {},
                        const MaskArrays<accumulate_t<T>>& arrays = {}) {
  weft::detail::Buffer ranges;
  const auto shape = detail::masked_shape(device, detail::AttentionShape(extents, mask.causal), mask, arrays, ranges);
  detail::note_attention<T>(device, shape, 5);
  const weft::detail::TracedWhole whole(device.trace());
  if constexpr (detail::on_host<Exec>) detail::attention_host_backward(device, shape, in, out, d_out, lse, d);
  else detail::attention_device_backward(device, shape, in, out, d_out, lse, d);
}

/// A block of a longer attention, whose parts `merge_attention` combines: `queries` rows of each sequence with `keys` rows.
/// Sequences are `query_step` rows apart in q and arrays of its shape, `key_step` rows apart in k and v, and `statistic_step`
/// values apart in lse [sequences, heads, statistic_step].
struct AttentionBlock {
  std::size_t sequences = 1, queries = 1, keys = 1;
  std::size_t query_step = queries, key_step = keys, statistic_step = queries;
  std::size_t heads = 1, kv_heads = 1, head_width = 1;
  bool causal = false;    ///< row i attends to keys up to i; only if queries = keys
  KeyRanges ranges = {};  ///< [sequences, queries] each: the keys of a row, instead of `causal`; null: unused

  detail::AttentionShape shape() const {
    detail::AttentionShape shape(
        {.sequences = sequences, .length = queries, .heads = heads, .kv_heads = kv_heads, .head_width = head_width}, causal);
    shape.keys = keys, shape.query_step = query_step, shape.key_step = key_step, shape.statistic_step = statistic_step;
    shape.mask.first_key = ranges.first, shape.mask.end_key = ranges.end;
    return shape;
  }
};

/// attention_forward on a block. R is T, or accumulate_t<T> to merge blocks without rounding them first.
template <class T, class R, class Exec>
void attention_block_forward(Device<Exec>& device, const AttentionBlock& block, const AttentionOperands<const T>& in,
                             StridedRows<R> out, accumulate_t<T>* lse) {
  const detail::AttentionShape shape = block.shape();
  detail::note_attention<T>(device, shape, 2);
  const weft::detail::TracedWhole whole(device.trace());
  if constexpr (detail::on_host<Exec>) detail::attention_host_forward(device, shape, in, out, lse);
  else detail::attention_device_forward(device, shape, in, out, lse);
}

/// attention_backward on a block: out and lse are those of the whole attention, d is this block's part of the gradients.
template <class T, class R, class Exec>
void attention_block_backward(Device<Exec>& device, const AttentionBlock& block, const AttentionOperands<const T>& in,
                              StridedRows<const T> out, StridedRows<const T> d_out, const accumulate_t<T>* lse,
                              const AttentionOperands<R>& d) {
  const detail::AttentionShape shape = block.shape();
  detail::note_attention<T>(device, shape, 5);
  const weft::detail::TracedWhole whole(device.trace());
  if constexpr (detail::on_host<Exec>) detail::attention_host_backward(device, shape, in, out, d_out, lse, d);
  else detail::attention_device_backward(device, shape, in, out, d_out, lse, d);
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
