// SPDX-License-Identifier: Apache-2.0
#pragma once
// Philox for a register of draws at a time: the same words as core/philox.hpp, bit for bit, in a fifth of the time if the
// processor has 64-byte registers.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/core/philox.hpp>
#include <weft/core/text.hpp>
#include <weft/kernels/detail/lanes.hpp>

namespace weft::kernels::detail {

/// The number of words that one call of philox_words writes.
inline constexpr std::size_t philox_block = WEFT_COMPILER_VECTORS ? register_bytes / 2 : 4;

#if WEFT_COMPILER_VECTORS
typedef std::uint64_t LongRegister __attribute__((vector_size(register_bytes)));

/// The products of the low halves of each 64-bit lane.
[[gnu::always_inline]] inline LongRegister multiply_low(LongRegister a, std::uint64_t b) {
#if defined(__AVX512F__)
  LongRegister product;
  asm("vpmuludq %2, %1, %0" : "=v"(product) : "v"(a), "v"(b - LongRegister{}));
  return product;
#else
  return (a & 0xffffffffu) * b;
#endif
}

template <std::size_t... i>
[[gnu::always_inline]] inline void interleave(LongRegister a, LongRegister b, std::uint32_t* out, std::index_sequence<i...>) {
  constexpr std::size_t n = sizeof...(i);
  const LongRegister low = __builtin_shufflevector(a, b, int(i / 2 + (i % 2) * n)...);
  const LongRegister high = __builtin_shufflevector(a, b, int(n / 2 + i / 2 + (i % 2) * n)...);
  std::memcpy(out, &low, sizeof(low));
  std::memcpy(out + 2 * n, &high, sizeof(high));
}

/// out[4 d + k] = Philox::draw(key, first + d).word[k] for all 4 d + k below philox_block. Each counter word is the low half of a
/// 64-bit lane; the high halves are ignored.
[[gnu::always_inline]] inline void philox_words(std::uint64_t key, std::uint64_t first, std::uint32_t* out) {
  constexpr std::size_t draws = philox_block / 4;
  static constexpr std::uint64_t steps[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  LongRegister step;
  std::memcpy(&step, steps, sizeof(step));
  const LongRegister counter = step + first;
  LongRegister c0 = counter, c1 = counter >> 32, c2{}, c3{};
  std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const LongRegister a = multiply_low(c0, 0xD2511F53u), b = multiply_low(c2, 0xCD9E8D57u);
    c0 = (b >> 32) ^ c1 ^ std::uint64_t(k0);
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ std::uint64_t(k1);
    c3 = a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  interleave((c0 & 0xffffffffu) | (c1 << 32), (c2 & 0xffffffffu) | (c3 << 32), out, std::make_index_sequence<draws>());
}
#else
KOKKOS_FORCEINLINE_FUNCTION void philox_words(std::uint64_t key, std::uint64_t first, std::uint32_t* out) {
  const Philox::Words words = Philox::draw(key, first);
  for (int k = 0; k < 4; ++k) out[k] = words.word[k];
}
#endif

}  // namespace weft::kernels::detail
