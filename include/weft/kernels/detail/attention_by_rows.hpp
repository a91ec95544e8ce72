// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of whole sequences on batch-invariant hosts (NumericsOptions::batch_invariant): each row is computed as a row of a
// decoding step is, so training, prompts and decoding give the same bits. Slower than attention in tiles, whose order of sums
// depends on the place of a row and of its keys in a block.

#include <cmath>
#include <cstddef>
#include <limits>

#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_host.hpp>
#include <weft/kernels/detail/attention_one_row.hpp>
#include <weft/kernels/detail/attention_rows.hpp>

namespace weft::kernels::detail {

/// As attention_host_forward. Throws UsageError for a mask in arrays.
template <class T, class Exec>
void attention_by_rows(Device<Exec>& device, const AttentionShape& s, const AttentionOperands<const T>& in, StridedRows<T> out,
                       accumulate_t<T>* lse) {
  using A = accumulate_t<T>;
  using V = lanes_for<Exec, T>;
  if (s.mask.arrays())
    throw_error<UsageError>(
        {"attention: numerics.batch_invariant takes causal masks, windows and documents, and this layer's mask "
         "is an array (visible or added): leave batch_invariant out"});
  const A scale = A(1) / std::sqrt(A(s.head_width));
  AttentionHost<V, T, T>::run(device, {"attention", attention_bytes<T, T>(s)}, s, s.keys, [=](std::size_t item, char* workspace) {
    A* const p = reinterpret_cast<A*>(workspace);  // [keys]
    const std::size_t sequence = item / s.kv_heads, kv_head = item % s.kv_heads, width = s.head_width;
    const T* const keys = in.k + sequence * s.key_step * in.k_stride + kv_head * width;
    const T* const values = in.v + sequence * s.key_step * in.v_stride + kv_head * width;
    for (std::size_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head)
      for (std::size_t i = 0; i < s.length; ++i) {
        const std::size_t row = sequence * s.query_step + i, range = sequence * s.length + i;
        const bool ranges = s.mask.ranges();
        const std::size_t first = ranges ? std::size_t(s.mask.first_key[range]) : 0,
                          end = ranges     ? std::size_t(s.mask.end_key[range])
                                : s.causal ? i + 1
                                           : s.keys;
        T* const to = out.data + row * out.stride + head * width;
        A& statistic = lse[(sequence * s.heads + head) * s.statistic_step + i];
        if (end <= first) {
          for (std::size_t d = 0; d < width; ++d) to[d] = T(A(0));
          statistic = -std::numeric_limits<A>::infinity();
          continue;
        }
        statistic = attend_one_row<V>(scale, in.q + row * in.q_stride + head * width,
                                      HeadRows<T>{keys + first * in.k_stride, in.k_stride, end - first, width},
                                      HeadRows<T>{values + first * in.v_stride, in.v_stride, end - first, width}, p, to);
      }
  });
}

}  // namespace weft::kernels::detail
