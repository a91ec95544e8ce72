// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transpose of a square of 32-bit words in registers: log2(words of a register) rounds, each of which swaps one bit of the
// row number with one bit of the lane number. Twice as fast as moving single words. And pairs of numbers that alternate in
// memory, from and into two registers.

#include <cstddef>
#include <cstring>
#include <utility>

#include <weft/kernels/detail/lanes.hpp>

#if WEFT_COMPILER_VECTORS
namespace weft::kernels::detail {

inline constexpr std::size_t square_words = register_bytes / 4;

// Lane j of `low` is a[j], or b[j - step] if j has the bit `step`; `high` is a[j + step], or b[j].
template <std::size_t step, std::size_t... j>
[[gnu::always_inline]] inline void swap_bit(WordRegister& a, WordRegister& b, std::index_sequence<j...>) {
  constexpr std::size_t n = sizeof...(j);
  const WordRegister low = __builtin_shufflevector(a, b, int((j & step) != 0 ? n + j - step : j)...);
  const WordRegister high = __builtin_shufflevector(a, b, int((j & step) != 0 ? n + j : j + step)...);
  a = low;
  b = high;
}

template <std::size_t step>
[[gnu::always_inline]] inline void transpose_rounds(WordRegister (&rows)[square_words]) {
  if constexpr (step < square_words) {
    WEFT_UNROLL(16)
    for (std::size_t i = 0; i < square_words; ++i)
      if ((i & step) == 0) swap_bit<step>(rows[i], rows[i + step], std::make_index_sequence<square_words>());
    transpose_rounds<2 * step>(rows);
  }
}

/// to[j * ld + i] = lane j of load(i), for i and j below square_words; `load(i)` returns a WordRegister.
template <class Load, class Word>
[[gnu::always_inline]] inline void transpose_square(const Load& load, Word* to, std::size_t ld) {
  static_assert(sizeof(Word) == 4);
  WordRegister rows[square_words];
  WEFT_UNROLL(16)
  for (std::size_t i = 0; i < square_words; ++i) rows[i] = load(i);
  transpose_rounds<1>(rows);
  WEFT_UNROLL(16)
  for (std::size_t i = 0; i < square_words; ++i) std::memcpy(to + i * ld, &rows[i], sizeof(WordRegister));
}

/// The registers of p[0], p[2], ... and of p[1], p[3], ...
template <class V, std::size_t... j>
[[gnu::always_inline]] inline std::pair<V, V> split_pairs(const typename V::value_type* p, std::index_sequence<j...>) {
  const auto low = V::load(p).v, high = V::load(p + V::size).v;
  return {V(__builtin_shufflevector(low, high, int(2 * j)...)), V(__builtin_shufflevector(low, high, int(2 * j + 1)...))};
}
template <class V>
[[gnu::always_inline]] inline std::pair<V, V> split_pairs(const typename V::value_type* p) {
  return split_pairs<V>(p, std::make_index_sequence<V::size>());
}
/// The reverse.
template <class V, std::size_t... j>
[[gnu::always_inline]] inline void join_pairs(V a, V b, typename V::value_type* p, std::index_sequence<j...>) {
  constexpr std::size_t n = V::size;
  V(__builtin_shufflevector(a.v, b.v, int(j / 2 + j % 2 * n)...)).store(p);
  V(__builtin_shufflevector(a.v, b.v, int((n + j) / 2 + j % 2 * n)...)).store(p + n);
}
template <class V>
[[gnu::always_inline]] inline void join_pairs(V a, V b, typename V::value_type* p) {
  join_pairs(a, b, p, std::make_index_sequence<V::size>());
}

}  // namespace weft::kernels::detail
#endif
