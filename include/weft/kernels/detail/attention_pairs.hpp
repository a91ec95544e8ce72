// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles of attention whose operands are pairs of bfloat16 along the sum, for AVX-512 BF16. One instruction multiplies 16 pairs
// and adds both products to 16 floats, at twice the rate of float.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/attention_tiles.hpp>
#include <weft/kernels/detail/lanes.hpp>
#include <weft/kernels/detail/sweep.hpp>

#if WEFT_COMPILER_VECTORS && defined(__AVX512BF16__)
namespace weft::kernels::detail {

struct PairTiles {
  using V = Lanes<float, 16>;
  using A = float;
  using Operand = std::uint32_t;  // the even-numbered value is the low half
  using Element = bfloat16;
  static constexpr std::size_t depth = 2;
  static constexpr std::size_t columns = 2 * V::size;

  /// Two adjacent numbers in memory as one word; a missing second one is 0.
  [[gnu::always_inline]] static Operand pair_at(const bfloat16* p, std::size_t numbers) {
    Operand word = 0;
    if (numbers >= 2) std::memcpy(&word, p, 4);
    else std::memcpy(&word, p, 2);
    return word;
  }

  WEFT_NOINLINE static void left(std::size_t rows, std::size_t padded_rows, std::size_t width, std::size_t ld,
                                 const bfloat16* from, std::size_t stride, Operand* to) {
    for (std::size_t row = 0; row < padded_rows; ++row) {
      fetch(from + (row + rows_ahead) * stride, width);
      const std::size_t bytes = row < rows ? width * 2 : 0;
      char* out = reinterpret_cast<char*>(to + row * ld);
      if (bytes != 0) std::memcpy(out, from + row * stride, bytes);
      std::memset(out + bytes, 0, ld * 4 - bytes);
    }
  }
  WEFT_NOINLINE static void right(std::size_t rows, std::size_t padded_rows, std::size_t width, std::size_t ld,
                                  const bfloat16* from, std::size_t stride, Operand* to) {
    for (std::size_t row = 0; row < padded_rows; row += 2) {
      fetch(from + (row + rows_ahead) * stride, width);
      fetch(from + (row + rows_ahead + 1) * stride, width);
      Operand* out = to + row / 2 * ld;
      for (std::size_t d = 0; d < ld; d += V::size) {
        const std::size_t count = d < width ? width - d : 0;
        const WordRegister low = row < rows ? halves(from + row * stride + d, count) : WordRegister{};
        const WordRegister high = row + 1 < rows ? halves(from + (row + 1) * stride + d, count) : WordRegister{};
        const WordRegister words = low | (high << 16);
        std::memcpy(out + d, &words, sizeof(words));
      }
    }
  }
  WEFT_NOINLINE static void right_transposed(std::size_t rows, std::size_t width, std::size_t ld, const bfloat16* from,
                                             std::size_t stride, Operand* to) {
    for (std::size_t row = 0; row < ld; row += V::size) {
      const std::size_t here = row + V::size <= rows ? V::size : row < rows ? rows - row : 0;
      for (std::size_t k = 0; k < here; ++k) fetch(from + (row + V::size + k) * stride, width);
      std::size_t d = 0;
      for (; here == V::size && d + 2 * V::size <= width; d += 2 * V::size)
        transpose_square(
            [&](std::size_t k) {
              WordRegister words;
              std::memcpy(&words, from + (row + k) * stride + d, sizeof(words));
              return words;
            },
            to + d / 2 * ld + row, ld);
      for (; d < width; d += 2) {
        Operand* out = to + d / 2 * ld + row;
        const bfloat16* in = from + row * stride + d;
        for (std::size_t k = 0; k < here; ++k) out[k] = pair_at(in + k * stride, width - d);
        for (std::size_t k = here; k < V::size; ++k) out[k] = 0;
      }
    }
  }

  template <bool transposed>
  WEFT_NOINLINE static void multiply(std::size_t k, const Operand* a, std::size_t lda, const Operand* b, std::size_t ldb,
                                     float* c, std::size_t ldc, bool add) {
    V sums[tile_rows][2];
    WEFT_UNROLL(8)
    for (std::size_t row = 0; row < tile_rows; ++row) sums[row][0] = sums[row][1] = V(0.f);
    WEFT_UNROLL(2)
    for (std::size_t i = 0; i < k; ++i) {
      WordRegister left, right;
      std::memcpy(&left, b + i * ldb, sizeof(left));
      std::memcpy(&right, b + i * ldb + V::size, sizeof(right));
      WEFT_UNROLL(8)
      for (std::size_t row = 0; row < tile_rows; ++row) {
        Operand pair;
        std::memcpy(&pair, transposed ? a + i * lda + row : a + row * lda + i, sizeof(pair));
        const WordRegister factor = pair - WordRegister{};
        asm("vdpbf16ps %2, %1, %0" : "+v"(sums[row][0].v) : "v"(factor), "v"(left));
        asm("vdpbf16ps %2, %1, %0" : "+v"(sums[row][1].v) : "v"(factor), "v"(right));
      }
    }
    NumberTiles<V, float>::store_tile(sums, c, ldc, add);
  }

  [[gnu::always_inline]] static void store_column(const V (&rows)[2], Operand* to) {
    const WordRegister words = rounded(rows[0]) | (rounded(rows[1]) << 16);
    std::memcpy(to, &words, sizeof(words));
  }

 private:
  [[gnu::always_inline]] static WordRegister rounded(V x) {
    HalfRegister bits;
    asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(x.v));
    return widen(bits);
  }
  [[gnu::always_inline]] static WordRegister halves(const bfloat16* p, std::size_t count) {
    HalfRegister bits{};
    if (count >= V::size) std::memcpy(&bits, p, sizeof(bits));
    else
      for (std::size_t k = 0; k < count; ++k) bits[k] = p[k].bits;
    return widen(bits);
  }
};

}  // namespace weft::kernels::detail
#endif
