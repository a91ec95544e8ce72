// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention of one query head to the keys and values of one head: a row of a decoding step (cached_attention.hpp), and of whole
// sequences on batch-invariant hosts (attention_by_rows.hpp).

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/sweep.hpp>

namespace weft::kernels::detail {

/// The keys, or the values, of one head: `count` rows of `width` numbers, `stride` apart.
template <class T>
struct HeadRows {
  const T* first;
  std::size_t stride, count, width;
  KOKKOS_FORCEINLINE_FUNCTION const T* operator[](std::size_t i) const { return first + i * stride; }
};

/// Weighs the values of one head: out[d] = sum_i p[i] values[i, d], in registers.
template <class V, class A, class T>
KOKKOS_FORCEINLINE_FUNCTION void weigh_values(const A* p, A scale, const HeadRows<T>& values, T* out) {
  constexpr std::size_t side = 4;
  const std::size_t count = values.count, width = values.width;
  std::size_t d = 0;
  for (; d + side * V::size <= width; d += side * V::size) {
    V sums[side] = {V(A(0)), V(A(0)), V(A(0)), V(A(0))};
    for (std::size_t i = 0; i < count; ++i) {
      const V weight = V(p[i]);
      for (std::size_t j = 0; j < side; ++j) sums[j] = sums[j] + weight * V::load(values[i] + d + j * V::size);
    }
    for (std::size_t j = 0; j < side; ++j) (V(scale) * sums[j]).store(out + d + j * V::size);
  }
  sweep<V>(width - d, [&](std::size_t j, std::size_t lanes) {
    V total = V(A(0));
    for (std::size_t i = 0; i < count; ++i) total = total + V(p[i]) * V::load(values[i] + d + j, lanes);
    (V(scale) * total).store(out + d + j, lanes);
  });
}

/// One query head with at least one key; `p` is scratch, [keys]. Returns log(sum(exp(scores))). The bits depend only on the
/// numbers of the query, of the keys and of the values, and on their order.
template <class V, class A, class T>
KOKKOS_FORCEINLINE_FUNCTION A attend_one_row(A scale, const T* q, const HeadRows<T>& keys, const HeadRows<T>& values, A* p,
                                             T* out) {
  A top = A(0);
  for (std::size_t i = 0; i < keys.count; ++i) {
    const T* key = keys[i];
    p[i] =
        scale * sum(add_up<V>(keys.width, [&](std::size_t d, std::size_t n) { return V::load(q + d, n) * V::load(key + d, n); }));
    top = i == 0 || p[i] > top ? p[i] : top;
  }
  const A total = sum(add_up<V>(keys.count, [&](std::size_t i, std::size_t n) {
    const V power = V::first(exp(V::load(p + i, n) - V(top)), n, A(0));
    power.store(p + i, n);
    return power;
  }));
  weigh_values<V>(p, A(1) / total, values, out);
  return top + Kokkos::log(total);
}

}  // namespace weft::kernels::detail
