// SPDX-License-Identifier: Apache-2.0
#pragma once
// The innermost product of attention on hosts: 8 rows by 2 registers of columns, with 16 sums in registers (with g++ 12 this
// shape is as fast as oneDNN, and 4 by 4 less than half as fast). Operands are packed first: the left one by rows, the right one
// with its rows along the sum. The operands here are numbers of accumulate_t<T>; attention_pairs.hpp has pairs of bfloat16.

#include <cstddef>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/lanes.hpp>
#include <weft/kernels/detail/sweep.hpp>
#include <weft/kernels/detail/transpose.hpp>

namespace weft::kernels::detail {

inline constexpr std::size_t tile_rows = 8;
inline constexpr std::size_t rows_ahead = 8;  // rows to prefetch

/// to [rows, width] = factor * from [rows, ld], rounded once to T.
template <class V, class T>
void unpack_rows(std::size_t rows, std::size_t width, typename V::value_type factor, const typename V::value_type* from,
                 std::size_t ld, T* to, std::size_t stride) {
  for (std::size_t row = 0; row < rows; ++row) {
    fetch<true>(to + (row + rows_ahead) * stride, width);
    sweep<V>(width, [&](std::size_t i, std::size_t count) {
      (V::load(from + row * ld + i) * V(factor)).store(to + row * stride + i, count);
    });
  }
}

/// to [width, ld] = the transpose of from [rows, width] with rows `stride` apart; columns from `rows` to ld are 0.
template <class V, class To, class From>
WEFT_NOINLINE void pack_transposed(std::size_t rows, std::size_t width, std::size_t ld, const From* from, std::size_t stride,
                                   To* to) {
  constexpr std::size_t block = V::size;
  for (std::size_t row = 0; row < ld; row += block) {
    const std::size_t here = row + block <= rows ? block : row < rows ? rows - row : 0;
    for (std::size_t k = 0; k < here; ++k) fetch(from + (row + block + k) * stride, width);
    std::size_t column = 0;
#if WEFT_COMPILER_VECTORS
    if constexpr (sizeof(To) == 4)
      for (; here == block && column + block <= width; column += block)
        transpose_square([&](std::size_t k) { return (WordRegister)V::load(from + (row + k) * stride + column).v; },
                         to + column * ld + row, ld);
#endif
    for (; column < width; ++column) {
      To* out = to + column * ld + row;
      const From* in = from + row * stride + column;
      for (std::size_t k = 0; k < here; ++k) out[k] = To(in[k * stride]);
      for (std::size_t k = here; k < block; ++k) out[k] = To(0);
    }
  }
}

/// Tiles whose operands are single numbers.
template <class V, class T>
struct NumberTiles {
  using A = typename V::value_type;
  using Operand = A;
  using Element = A;
  static constexpr std::size_t depth = 1;  // numbers along the sum in one operand
  static constexpr std::size_t columns = 2 * V::size;

  /// to [padded_rows, ld] = from [rows, width], padded with 0.
  static void left(std::size_t rows, std::size_t padded_rows, std::size_t width, std::size_t ld, const T* from,
                   std::size_t stride, A* to) {
    for (std::size_t row = 0; row < padded_rows; ++row) {
      A* out = to + row * ld;
      std::size_t done = 0;
      if (row < rows) fetch(from + (row + rows_ahead) * stride, width);
      if (row < rows)
        for (; done < width; done += V::size) V::load(from + row * stride + done, width - done).store(out + done);
      for (; done < ld; done += V::size) V(0).store(out + done);
    }
  }
  static void right(std::size_t rows, std::size_t padded_rows, std::size_t width, std::size_t ld, const T* from,
                    std::size_t stride, A* to) {
    left(rows, padded_rows, width, ld, from, stride, to);
  }
  /// The right operand of a product over `width`: [width, ld], the transpose of the rows.
  static void right_transposed(std::size_t rows, std::size_t width, std::size_t ld, const T* from, std::size_t stride, A* to) {
    pack_transposed<V>(rows, width, ld, from, stride, to);
  }

  /// c [8, 2 registers] (+)= a b over k operands: b is [k, ldb]; a is [8, k] with rows lda apart or, transposed, [k, 8].
  template <bool transposed>
  WEFT_NOINLINE static void multiply(std::size_t k, const A* a, std::size_t lda, const A* b, std::size_t ldb, A* c,
                                     std::size_t ldc, bool add) {
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
    store_tile(sums, c, ldc, add);
  }

  /// Stores one register of operands along the rows.
  static void store_column(const V (&rows)[1], Operand* to) { rows[0].store(to); }

  static void store_tile(V (&sums)[tile_rows][2], A* c, std::size_t ldc, bool add) {
    WEFT_UNROLL(8)
    for (std::size_t row = 0; row < tile_rows; ++row) {
      A* to = c + row * ldc;
      if (add) {
        sums[row][0] = sums[row][0] + V::load(to);
        sums[row][1] = sums[row][1] + V::load(to + V::size);
      }
      sums[row][0].store(to);
      sums[row][1].store(to + V::size);
    }
  }
};

}  // namespace weft::kernels::detail
