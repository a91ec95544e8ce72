// SPDX-License-Identifier: Apache-2.0
#pragma once
// Named arguments of attention, because a call has five extents and up to eight arrays with strides.
//
//   const kernels::AttentionExtents extents{.sequences = 2, .length = 64, .heads = 4, .kv_heads = 2, .head_width = 32};
//   const kernels::AttentionOperands<const float> in{.q = q, .k = k, .v = v,
//                                                    .q_stride = stride, .k_stride = stride, .v_stride = stride};
//   kernels::attention_forward(device, extents, in, {out, extents.width()}, lse);

#include <cstddef>

#include <weft/core/standard.hpp>

namespace weft::kernels {

/// Whole sequences of `length` tokens. Query head h reads key-value head h / group().
struct AttentionExtents {
  std::size_t sequences = 1, length = 1, heads = 1, kv_heads = 1, head_width = 1;
  std::size_t keys = length;  ///< keys per sequence; may differ from its queries only under a full mask
  std::size_t rows() const { return sequences * length; }
  std::size_t group() const { return heads / kv_heads; }
  std::size_t width() const { return heads * head_width; }
  std::size_t kv_width() const { return kv_heads * head_width; }
};

/// Rows of an array, `stride` values apart.
template <class T>
struct StridedRows {
  T* data = nullptr;
  std::size_t stride = 0;
};
template <class T>
StridedRows(T*, std::size_t) -> StridedRows<T>;

/// Query, key and value, or their gradients, with the strides of their rows. They may be slices of one array.
template <class T>
struct AttentionOperands {
  T *q = nullptr, *k = nullptr, *v = nullptr;
  std::size_t q_stride = 0, k_stride = 0, v_stride = 0;
};

}  // namespace weft::kernels
