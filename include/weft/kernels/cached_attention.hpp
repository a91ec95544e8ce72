// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of a few query rows to the keys and values of earlier tokens (decoding). Each row is a token with a sequence and a
// position. A cache is [sequences, kv_heads, capacity, head_width], so a head's keys are contiguous.
//
//   kernels::append_to_cache(device, extents, place, k, k_stride, v, v_stride, keys, values);
//   kernels::cached_attention(device, extents, place, q, q_stride, keys, values, out);

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_one_row.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/sweep.hpp>

namespace weft::kernels {

/// Query head h reads key-value head h / (heads / kv_heads).
struct CacheExtents {
  std::size_t rows = 0, heads = 1, kv_heads = 1, head_width = 1;
  std::size_t capacity = 0;  ///< tokens per sequence that fit into the cache
  std::size_t longest = 0;   ///< greater than every position
  std::size_t window = 0;    ///< a token uses itself and the window - 1 tokens before it; 0: all before it
};

/// The tokens of the rows, [rows] each in device memory. Rows with a negative sequence are padding.
struct CachePlace {
  const std::int32_t *sequences = nullptr, *positions = nullptr;
};

/// Stores the rows' keys and values, [rows, kv_heads * head_width] with rows `k_stride` and `v_stride` values apart, at their
/// positions.
template <class T, class Exec>
void append_to_cache(Device<Exec>& device, const CacheExtents& e, const CachePlace& place, const T* k, std::size_t k_stride,
                     const T* v, std::size_t v_stride, T* keys, T* values) {
  using V = detail::lanes_for<Exec, T>;
  const std::size_t width = e.head_width, kv_heads = e.kv_heads, capacity = e.capacity;
  detail::for_each(
      device, {"copy", 4 * e.rows * kv_heads * width * sizeof(T)}, e.rows * kv_heads, KOKKOS_LAMBDA(const std::size_t i) {
        const std::size_t row = i / kv_heads, head = i % kv_heads;
        if (place.sequences[row] < 0) return;
        const std::size_t to =
            ((std::size_t(place.sequences[row]) * kv_heads + head) * capacity + std::size_t(place.positions[row])) * width;
        const T *from_k = k + row * k_stride + head * width, *from_v = v + row * v_stride + head * width;
        detail::sweep<V>(width, [&](std::size_t d, std::size_t count) {
          V::load(from_k + d, count).store(keys + to + d, count);
          V::load(from_v + d, count).store(values + to + d, count);
        });
      });
}

/// out[r, h] = softmax(q k^T / sqrt(head_width)) v over the keys of the row's sequence up to its position (with a window, the
/// last ones), for out [rows, heads * head_width] and rows of q `q_stride` values apart; padding gets 0. Statistics and sums in
/// accumulate_t<T>. The same bits for any number of threads, and for any other rows in the call.
template <class T, class Exec>
void cached_attention(Device<Exec>& device, const CacheExtents& e, const CachePlace& place, const T* q, std::size_t q_stride,
                      const T* keys, const T* values, T* out) {
  using A = accumulate_t<T>;
  using V = detail::lanes_for<Exec, T>;
  const weft::detail::Buffer memory = device.allocate(e.rows * e.heads * e.longest * sizeof(A));
  A* const scores = static_cast<A*>(memory.get());  // [rows, heads, longest]
  const CacheExtents all = e;
  const A scale = A(1) / std::sqrt(A(e.head_width));
  detail::for_each(
      device, {"attention", 2 * e.rows * (e.heads + e.kv_heads * e.longest) * e.head_width * sizeof(T)}, e.rows * e.heads,
      KOKKOS_LAMBDA(const std::size_t i) {
        const std::size_t row = i / all.heads, head = i % all.heads, width = all.head_width;
        T* const to = out + i * width;
        if (place.sequences[row] < 0) {
          for (std::size_t d = 0; d < width; ++d) to[d] = T(0);
          return;
        }
        const std::size_t end = std::size_t(place.positions[row]) + 1,
                          first = all.window != 0 && all.window < end ? end - all.window : 0,
                          kv_head = head / (all.heads / all.kv_heads),
                          from = ((std::size_t(place.sequences[row]) * all.kv_heads + kv_head) * all.capacity + first) * width;
        const std::size_t count = end - first;
        detail::attend_one_row<V>(scale, q + row * q_stride + head * width, detail::HeadRows<T>{keys + from, width, count, width},
                                  detail::HeadRows<T>{values + from, width, count, width}, scores + i * all.longest, to);
      });
}

}  // namespace weft::kernels

#ifdef WEFT_COMPILED
#include <weft/kernels/compiled.hpp>
#endif
