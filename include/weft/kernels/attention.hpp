// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal softmax attention, multi-head or grouped-query, without the matrix of probabilities: the forward keeps one log-sum-exp
// for each row, the backward computes the probabilities again (FlashAttention-2, Dao 2023).
//
//   kernels::attention_forward(device, sequences, length, heads, kv_heads, head_width, q, stride, k, stride, v, stride, out,
//   width, lse);
//
// A row is a token, sequences * length of them; row r of q holds heads * head_width values from q + r * q_stride on, rows of k
// and v kv_heads * head_width values, so that q, k and v may be slices of one array. Head h reads key-value head
// h / (heads / kv_heads). Scores are scaled by 1 / sqrt(head_width).

#include <cmath>
#include <cstddef>
#include <string>

#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_host.hpp>
#include <weft/kernels/detail/attention_fused.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// out[r, h] = softmax(q k^T / sqrt(head_width)) v; lse [sequences, heads, length] keeps log(sum(exp(scores))) in
/// accumulate_t<T>. Throws ShapeError where kv_heads does not divide heads. The same bits for any number of threads.
template <class T, class Exec>
void attention_forward(Device<Exec>& device, std::size_t sequences, std::size_t length, std::size_t heads, std::size_t kv_heads,
                       std::size_t head_width, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride, const T* v,
                       std::size_t v_stride, T* out, std::size_t out_stride, accumulate_t<T>* lse, bool causal = true) {
  const detail::AttentionShape shape(sequences, length, heads, kv_heads, head_width, causal);
  if constexpr (detail::on_host<Exec>)
    detail::attention_host_forward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, lse);
  else detail::attention_device_forward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, lse);
}

/// dq, dk and dv from d_out, with out and lse of the forward. They are written, not added to, and may be slices of one array, but
/// not the arrays of q, k and v. The same bits for any number of threads.
template <class T, class Exec>
void attention_backward(Device<Exec>& device, std::size_t sequences, std::size_t length, std::size_t heads, std::size_t kv_heads,
                        std::size_t head_width, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride, const T* v,
                        std::size_t v_stride, const T* out, std::size_t out_stride, const T* d_out, std::size_t d_out_stride,
                        const accumulate_t<T>* lse, T* dq, std::size_t dq_stride, T* dk, std::size_t dk_stride, T* dv,
                        std::size_t dv_stride, bool causal = true) {
  const detail::AttentionShape shape(sequences, length, heads, kv_heads, head_width, causal);
  if constexpr (detail::on_host<Exec>)
    detail::attention_host_backward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, d_out, d_out_stride,
                                    lse, dq, dq_stride, dk, dk_stride, dv, dv_stride);
  else
    detail::attention_device_backward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, d_out, d_out_stride,
                                    lse, dq, dq_stride, dk, dk_stride, dv, dv_stride);
}

/// A block of a longer attention, whose parts `merge_attention` puts together: `queries` rows of each sequence against `keys`
/// rows. Sequences lie `query_step` rows apart in q and what is shaped like it, `key_step` in k and v, and `statistic_step` in
/// lse [sequences, heads, statistic_step].
struct AttentionBlock {
  std::size_t sequences, queries, keys, query_step, key_step, statistic_step;
  bool causal = false;  ///< row i sees keys up to i; only where queries = keys

  detail::AttentionShape shape(std::size_t heads, std::size_t kv_heads, std::size_t head_width) const {
    if (causal && queries != keys)
      throw_error<ShapeError>({"attention: a causal block of ", queries, " queries and ", keys, " keys"});
    detail::AttentionShape shape(sequences, queries, heads, kv_heads, head_width, causal);
    shape.keys = keys, shape.query_step = query_step, shape.key_step = key_step, shape.statistic_step = statistic_step;
    return shape;
  }
};

/// As attention_forward, on a block. R: T, or accumulate_t<T> so that nothing is rounded before blocks are merged.
template <class T, class R, class Exec>
void attention_block_forward(Device<Exec>& device, const AttentionBlock& block, std::size_t heads, std::size_t kv_heads,
                             std::size_t head_width, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride,
                             const T* v, std::size_t v_stride, R* out, std::size_t out_stride, accumulate_t<T>* lse) {
  const detail::AttentionShape shape = block.shape(heads, kv_heads, head_width);
  if constexpr (detail::on_host<Exec>)
    detail::attention_host_forward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, lse);
  else detail::attention_device_forward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, lse);
}

/// As attention_backward, on a block: out and lse are those of the whole attention, the gradients this block's part.
template <class T, class R, class Exec>
void attention_block_backward(Device<Exec>& device, const AttentionBlock& block, std::size_t heads, std::size_t kv_heads,
                              std::size_t head_width, const T* q, std::size_t q_stride, const T* k, std::size_t k_stride,
                              const T* v, std::size_t v_stride, const T* out, std::size_t out_stride, const T* d_out,
                              std::size_t d_out_stride, const accumulate_t<T>* lse, R* dq, std::size_t dq_stride, R* dk,
                              std::size_t dk_stride, R* dv, std::size_t dv_stride) {
  const detail::AttentionShape shape = block.shape(heads, kv_heads, head_width);
  if constexpr (detail::on_host<Exec>)
    detail::attention_host_backward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, d_out, d_out_stride,
                                    lse, dq, dq_stride, dk, dk_stride, dv, dv_stride);
  else
    detail::attention_device_backward(device, shape, q, q_stride, k, k_stride, v, v_stride, out, out_stride, d_out, d_out_stride,
                                    lse, dq, dq_stride, dk, dk_stride, dv, dv_stride);
}

}  // namespace weft::kernels
