// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11). A number is a pure function of (key, counter), so any rank
// can draw its part of a tensor without the others. With the global element index as the counter, initial weights and dropout are
// bitwise the same in every layout. Tests compare it with Random123's known answers.
//
//   const float u = Philox::uniform(key_of(seed, site_of("dropout"), step), index);

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string_view>

#include <weft/core/standard.hpp>
#include <weft/core/text.hpp>

namespace weft {

/// Four 32-bit words from a 128-bit counter and a 64-bit key.
struct Philox {
  struct Words {
    std::uint32_t word[4];
  };

  KOKKOS_INLINE_FUNCTION static constexpr Words draw(std::uint64_t key, std::uint64_t counter, std::uint64_t counter_high = 0) {
    Words c{
        {std::uint32_t(counter), std::uint32_t(counter >> 32), std::uint32_t(counter_high), std::uint32_t(counter_high >> 32)}};
    std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t(0xD2511F53u) * c.word[0], b = std::uint64_t(0xCD9E8D57u) * c.word[2];
      c = {
          {std::uint32_t(b >> 32) ^ c.word[1] ^ k0, std::uint32_t(b), std::uint32_t(a >> 32) ^ c.word[3] ^ k1, std::uint32_t(a)}};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }

  /// The `index`-th 32-bit number of the stream `key`; one draw gives four of them.
  KOKKOS_INLINE_FUNCTION static constexpr std::uint32_t at(std::uint64_t key, std::uint64_t index) {
    return draw(key, index >> 2).word[index & 3];
  }

  /// Uniform in [0, 1), 24 bits.
  KOKKOS_INLINE_FUNCTION static constexpr float uniform(std::uint64_t key, std::uint64_t index) {
    return float(at(key, index) >> 8) * 0x1p-24f;
  }

  /// A standard normal number by the Box-Muller transform, one draw each, in double: the same bits on every host with the same
  /// libm.
  KOKKOS_INLINE_FUNCTION static double normal(std::uint64_t key, std::uint64_t index) {
    const Words w = draw(key, index);
    const double u = (double(w.word[0]) + 0.5) * 0x1p-32, v = (double(w.word[1]) + 0.5) * 0x1p-32;
    return Kokkos::sqrt(-2.0 * Kokkos::log(u)) * Kokkos::cos(6.283185307179586476925 * v);
  }
};

/// The random-number site of a name: its 64-bit FNV-1a hash.
constexpr std::uint64_t site_of(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

/// One key from several numbers (seed, site, step, ...). SplitMix64's finaliser is applied after each number, so tuples that
/// differ in one number give unrelated keys.
template <class... N>
constexpr std::uint64_t key_of(N... numbers) {
  std::uint64_t hash = 0;
  const auto mix = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  };
  ((hash = mix(hash ^ static_cast<std::uint64_t>(numbers))), ...);
  return hash;
}

}  // namespace weft
