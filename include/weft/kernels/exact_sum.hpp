// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sum of squares that does not depend on the order of its terms. Squares are added in blocks of 32 neighbours, and the blocks'
// sums in one integer that is wide enough for every double (Kulisch's long accumulator), so the sums of ranks are added without
// rounding.
//
//   Tensor<std::int64_t, Exec> words(device, {exact_sum_words});     // filled with zeros
//   kernels::exact_squared_norm(device, n, first, gradient, words.data());
//   std::vector<std::int64_t> host = copy_to_host(words);
//   kernels::carry(host);
//   communicator.all_reduce(host);
//   const double sum = kernels::exact_value(host);

#include <Kokkos_Core.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// Word i counts multiples of 2^(32 i - 1074). The last but one word counts terms that are not finite, the last one such terms
/// among those that are not to be counted.
inline constexpr std::size_t exact_sum_words = 70;
/// Squares are added in blocks of this many neighbours, which begin at multiples of it.
inline constexpr std::size_t exact_sum_block = 32;

namespace detail {

/// words += x; x must not be negative.
KOKKOS_INLINE_FUNCTION void deposit(std::int64_t* words, double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x), exponent = bits >> 52;
  if (exponent >= 0x7ff) {  // infinite or NaN, of either sign
    ++words[exact_sum_words - 2];
    return;
  }
  if (bits == 0) return;
  const std::uint64_t mantissa = (bits & 0xfffffffffffffu) | (exponent != 0 ? std::uint64_t(1) << 52 : 0),
                      place = exponent != 0 ? exponent - 1 : 0;
  const std::uint64_t word = place / 32, shift = place % 32, low = mantissa << shift;
  words[word] += std::int64_t(low & 0xffffffffu);
  words[word + 1] += std::int64_t(low >> 32);
  if (shift != 0) words[word + 2] += std::int64_t(mantissa >> (64 - shift));
}

}  // namespace detail

/// words += g[0]^2 + ... + g[n - 1]^2. Blocks begin at indices with `first` + i a multiple of 32. Up to 2^35 elements a rank.
/// `words` lies in the device's memory space.
template <class T, class Exec>
void exact_squared_norm(Device<Exec>& device, std::size_t n, std::size_t first, const T* g, std::int64_t* words) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  constexpr std::size_t chunk = 512 * exact_sum_block;
  const std::size_t before = first % exact_sum_block, chunks = (before + n + chunk - 1) / chunk;
  detail::for_each(
      device, {"gradient_norm", n * sizeof(T)}, chunks, KOKKOS_LAMBDA(std::size_t c) {
        std::int64_t local[exact_sum_words] = {};
        const std::size_t end = (c + 1) * chunk < before + n ? (c + 1) * chunk - before : n;
        for (std::size_t i = c == 0 ? 0 : c * chunk - before; i < end;) {
          const std::size_t block_end = (before + i) / exact_sum_block * exact_sum_block + exact_sum_block - before;
          const std::size_t stop = block_end < end ? block_end : end;
          V squares = V(A(0));
          for (; i + V::size <= stop; i += V::size) {
            const V x = V::load(g + i);
            squares = squares + x * x;
          }
          if (i < stop) {
            const V x = V::load(g + i, stop - i);
            squares = squares + x * x;
            i = stop;
          }
          const double square = double(sum(squares));
          detail::deposit(local, square);
        }
        for (std::size_t word = 0; word < exact_sum_words; ++word)
          if (local[word] != 0) Kokkos::atomic_add(words + word, local[word]);
      });
}

/// Carries, so that every word but the last two is below 2^32 and the words of up to 2^31 ranks can be added.
void carry(std::span<std::int64_t> words);

/// The sum as a double; NaN if a term was not finite.
double exact_value(std::span<std::int64_t> words);

}  // namespace weft::kernels

#ifndef WEFT_COMPILED
#include <weft/kernels/exact_sum_impl.hpp>
#endif
