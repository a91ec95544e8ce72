// SPDX-License-Identifier: Apache-2.0
#pragma once
// The innermost product of attention on hosts: 8 rows by 2 registers of columns, whose 16 sums stay in registers (with g++ 12
// this shape reaches oneDNN's rate, 4 by 4 less than half of it).

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/lanes.hpp>

namespace weft::kernels::detail {

inline constexpr std::size_t tile_rows = 8;
template <class V>
inline constexpr std::size_t tile_columns = 2 * V::size;

/// c [8, 2 registers] (+)= a b over k: b is [k, ldb]; a is [8, k] with rows lda apart or, transposed, [k, 8] with rows lda apart.
template <bool transposed, class V>
WEFT_NOINLINE void multiply_tile(std::size_t k, const typename V::value_type* a, std::size_t lda, const typename V::value_type* b,
                                 std::size_t ldb, typename V::value_type* c, std::size_t ldc, bool add) {
  V sums[tile_rows][2];
  WEFT_UNROLL(8)
  for (std::size_t row = 0; row < tile_rows; ++row) sums[row][0] = sums[row][1] = V(0);
  WEFT_UNROLL(2)
  for (std::size_t i = 0; i < k; ++i) {
    const V left = V::load(b + i * ldb), right = V::load(b + i * ldb + V::size);
    WEFT_UNROLL(8)
    for (std::size_t row = 0; row < tile_rows; ++row) {
      const V factor = V(transposed ? a[i * lda + row] : a[row * lda + i]);
      sums[row][0] = sums[row][0] + factor * left;
      sums[row][1] = sums[row][1] + factor * right;
    }
  }
  WEFT_UNROLL(8)
  for (std::size_t row = 0; row < tile_rows; ++row) {
    auto* to = c + row * ldc;
    if (add) {
      sums[row][0] = sums[row][0] + V::load(to);
      sums[row][1] = sums[row][1] + V::load(to + V::size);
    }
    sums[row][0].store(to);
    sums[row][1].store(to + V::size);
  }
}

/// to [rows, ld] = factor * from, whose rows are `stride` apart and `width` wide; what is beyond width and rows is 0.
template <class V, class T>
void pack_rows(std::size_t rows, std::size_t padded_rows, std::size_t width, std::size_t ld, typename V::value_type factor,
               const T* from, std::size_t stride, typename V::value_type* to) {
  for (std::size_t row = 0; row < padded_rows; ++row) {
    auto* out = to + row * ld;
    std::size_t done = 0;
    if (row < rows)
      for (; done < width; done += V::size) (V::load(from + row * stride + done, width - done) * V(factor)).store(out + done);
    for (; done < ld; done += V::size) V(0).store(out + done);
  }
}

/// to [width, ld] = the transpose of from [rows, width] with rows `stride` apart; columns from `rows` to ld are 0.
template <class A, class T>
void pack_transposed(std::size_t rows, std::size_t width, std::size_t ld, const T* from, std::size_t stride, A* to) {
  constexpr std::size_t block = 16;
  for (std::size_t row = 0; row < ld; row += block) {
    const std::size_t here = row + block <= rows ? block : row < rows ? rows - row : 0;
    for (std::size_t column = 0; column < width; ++column) {
      A* out = to + column * ld + row;
      const T* in = from + row * stride + column;
      if (here == block) {
        WEFT_UNROLL(16)
        for (std::size_t k = 0; k < block; ++k) out[k] = A(in[k * stride]);
      } else {
        for (std::size_t k = 0; k < here; ++k) out[k] = A(in[k * stride]);
        for (std::size_t k = here; k < block && row + k < ld; ++k) out[k] = A(0);
      }
    }
  }
}

/// to [rows, width] = factor * from, rounded once to T.
template <class V, class T>
void unpack_rows(std::size_t rows, std::size_t width, typename V::value_type factor, const typename V::value_type* from,
                 std::size_t ld, T* to, std::size_t stride) {
  for (std::size_t row = 0; row < rows; ++row)
    sweep<V>(width, [&](std::size_t i, std::size_t count) {
      (V::load(from + row * ld + i) * V(factor)).store(to + row * stride + i, count);
    });
}

}  // namespace weft::kernels::detail
