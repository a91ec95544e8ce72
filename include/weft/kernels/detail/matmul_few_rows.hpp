// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of a few rows with a matrix, as in decoding, on hosts. Every number of the right matrix is read once, in the order of
// memory, and used for all rows. Libraries pack that matrix first, which takes as long as a product of many rows.

#include <algorithm>
#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/matmul_loops.hpp>
#include <weft/kernels/detail/sweep.hpp>

namespace weft::kernels::detail {

/// The largest number of rows for these kernels.
inline constexpr std::size_t few_rows = 4;

/// Writes the sum of one entry to c, rounded once.
template <class A, class T, class C>
KOKKOS_FORCEINLINE_FUNCTION void put(const MatmulShape& s, A sum, std::size_t row, std::size_t column, C* c, const T* bias) {
  C* const to = c + row * s.ldc + column;
  if (bias != nullptr) sum += A(bias[column]);
  if (s.accumulate) sum += A(*to);
  *to = C(sum);
}

/// R rows times b^T, b [n, k]: dot products, 8 at a time.
template <std::size_t R, class T, class C, class Exec>
void few_rows_by_transposed(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  using V = lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  constexpr std::size_t outputs = 8 / R;
  const MatmulShape shape = s;
  for_each(device, {"product", (R + s.n) * s.k * sizeof(T) + (s.accumulate ? 2 : 1) * R * s.n * sizeof(C)},
           (s.n + outputs - 1) / outputs, [=](std::size_t group) {
             const std::size_t first = group * outputs, here = std::min(outputs, shape.n - first);
             const T* rows[outputs];
             for (std::size_t j = 0; j < outputs; ++j) rows[j] = b + (first + std::min(j, here - 1)) * shape.ldb;
             V sums[R][outputs];
             for (std::size_t r = 0; r < R; ++r)
               for (std::size_t j = 0; j < outputs; ++j) sums[r][j] = V(A(0));
             sweep<V>(shape.k, [&](std::size_t i, std::size_t count) {
               V x[R];
               for (std::size_t r = 0; r < R; ++r) x[r] = V::load(a + r * shape.lda + i, count);
               for (std::size_t j = 0; j < outputs; ++j) {
                 fetch(rows[j] + outputs * shape.ldb + i,
                       1);  // prefetch the next group: a row is too short for the processor's prefetcher
                 const V w = V::load(rows[j] + i, count);
                 for (std::size_t r = 0; r < R; ++r) sums[r][j] = sums[r][j] + x[r] * w;
               }
             });
             for (std::size_t r = 0; r < R; ++r)
               for (std::size_t j = 0; j < here; ++j) put(shape, sum(sums[r][j]), r, first + j, c, bias);
           });
}

/// R rows times b^T, b [n, k], of fewer columns than lanes, whose parts of a register would take longer to fill than to multiply.
template <std::size_t R, class T, class C, class Exec>
void few_rows_by_short(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  using A = accumulate_t<T>;
  const MatmulShape shape = s;
  for_each(device, {"product", (R + s.n) * s.k * sizeof(T) + (s.accumulate ? 2 : 1) * R * s.n * sizeof(C)}, s.n,
           [=](std::size_t column) {
             for (std::size_t r = 0; r < R; ++r) {
               A sum = 0;
               for (std::size_t i = 0; i < shape.k; ++i) sum += A(a[r * shape.lda + i]) * A(b[column * shape.ldb + i]);
               put(shape, sum, r, column, c, bias);
             }
           });
}

/// R rows times b, b [k, n]: adds rows of b, 4 at a time, to the sums of a piece of columns.
template <std::size_t R, class T, class C, class Exec>
void few_rows_by_plain(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  using V = lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  constexpr std::size_t most = 1024 / R, together = 4;
  const std::size_t threads = std::size_t(device.threads()), share = (s.n + threads - 1) / threads,
                    piece = std::clamp<std::size_t>((share + 31) / 32 * 32, 128 / R, most);
  const MatmulShape shape = s;
  for_each(device, {"product", (R + s.n) * s.k * sizeof(T) + (s.accumulate ? 2 : 1) * R * s.n * sizeof(C)},
           (s.n + piece - 1) / piece, [=](std::size_t index) {
             const std::size_t first = index * piece, here = std::min(piece, shape.n - first);
             A sums[R * most];
             std::fill_n(sums, R * most, A(0));
             const auto add = [&]<std::size_t Together>(std::size_t i, std::integral_constant<std::size_t, Together>) {
               V x[R][Together];
               for (std::size_t r = 0; r < R; ++r)
                 for (std::size_t j = 0; j < Together; ++j) x[r][j] = V(A(a[r * shape.lda + i + j]));
               const T* const row = b + i * shape.ldb + first;
               sweep<V>(here, [&](std::size_t column, std::size_t count) {
                 V w[Together];
                 for (std::size_t j = 0; j < Together; ++j) fetch(row + (Together + j) * shape.ldb + column, 1);
                 for (std::size_t j = 0; j < Together; ++j) w[j] = V::load(row + j * shape.ldb + column, count);
                 for (std::size_t r = 0; r < R; ++r) {
                   V total = V::load(sums + r * most + column, count);
                   for (std::size_t j = 0; j < Together; ++j) total = total + x[r][j] * w[j];
                   total.store(sums + r * most + column, count);
                 }
               });
             };
             std::size_t i = 0;
             for (; i + together <= shape.k; i += together) add(i, std::integral_constant<std::size_t, together>());
             for (; i < shape.k; ++i) add(i, std::integral_constant<std::size_t, 1>());
             for (std::size_t r = 0; r < R; ++r)
               for (std::size_t j = 0; j < here; ++j) put(shape, sums[r * most + j], r, first + j, c, bias);
           });
}

/// matmul of 1 to few_rows rows that are not transposed. The same bits for any number of threads.
template <class T, class C, class Exec>
void matmul_few_rows(Device<Exec>& device, const MatmulShape& s, const T* a, const T* b, C* c, const T* bias) {
  const auto some = [&]<std::size_t R>(std::size_t row, std::integral_constant<std::size_t, R>) {
    if (s.transpose_b && s.k < lanes_for<Exec, T>::size)
      few_rows_by_short<R>(device, s, a + row * s.lda, b, c + row * s.ldc, bias);
    else if (s.transpose_b) few_rows_by_transposed<R>(device, s, a + row * s.lda, b, c + row * s.ldc, bias);
    else few_rows_by_plain<R>(device, s, a + row * s.lda, b, c + row * s.ldc, bias);
  };
  std::size_t row = 0;
  for (; row + 4 <= s.m; row += 4) some(row, std::integral_constant<std::size_t, 4>());
  for (; row + 2 <= s.m; row += 2) some(row, std::integral_constant<std::size_t, 2>());
  for (; row < s.m; ++row) some(row, std::integral_constant<std::size_t, 1>());
}

}  // namespace weft::kernels::detail
