// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix product as plain loops, for every space and type.

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels::detail {

struct MatmulShape {
  bool transpose_a, transpose_b;
  std::size_t m, n, k, lda, ldb, ldc;
  bool accumulate;
  bool operator==(const MatmulShape&) const = default;
};

/// Bytes that a product reads and writes if each matrix is touched once.
template <class T, class C>
std::size_t matmul_bytes(const MatmulShape& s) {
  return (s.m + s.n) * s.k * sizeof(T) + (s.accumulate ? 2 : 1) * s.m * s.n * sizeof(C);
}

template <class T, class C, class Exec>
void matmul_loops(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  using A = accumulate_t<T>;
  const std::size_t a_row = s.transpose_a ? 1 : s.lda, a_column = s.transpose_a ? s.lda : 1;
  const std::size_t b_row = s.transpose_b ? 1 : s.ldb, b_column = s.transpose_b ? s.ldb : 1;
  const std::size_t n = s.n, k = s.k, ldc = s.ldc;
  const bool accumulate = s.accumulate;
  for_each(
      device, {"product", matmul_bytes<T, C>(s)}, s.m * n, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t row = item / n, column = item % n;
        A sum = bias != nullptr ? A(bias[column]) : A(0);
        C* to = c + row * ldc + column;
        if (accumulate) sum += A(*to);
        for (std::size_t i = 0; i < k; ++i) sum += A(a[row * a_row + i * a_column]) * A(b[i * b_row + column * b_column]);
        *to = C(sum);
      });
}

}  // namespace weft::kernels::detail
