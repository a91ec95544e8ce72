// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantisation to integers of 8 or 4 bits with one scale per block of 256 numbers, and back (ZeRO++, arXiv:2306.10209,
// sections 3.1 and 3.3). Two integers of 4 bits share a byte, the first in its low half.
//
//   kernels::quantise(device, n, x, integers, scales);            // |x - integer * scale| <= max|x| of the block / 127 / 2
//   kernels::dequantise(device, n, integers, scales, y);
//   kernels::quantise<float, 4>(device, n, x, integers, scales);  // max|x| / 7 / 2

#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

inline constexpr std::size_t quantised_block = 256;
/// The number of scales for n numbers.
constexpr std::size_t quantised_blocks(std::size_t n) { return (n + quantised_block - 1) / quantised_block; }
/// The bytes of n integers of 8 or 4 bits.
constexpr std::size_t quantised_bytes(std::size_t n, int bits) { return bits == 8 ? n : (n + 1) / 2; }

namespace detail {

template <class A>
struct Quantiser {
  A scale, factor;  // of a block; the factor is 0 if the block is zero or has a number that is not finite

  KOKKOS_FUNCTION Quantiser(A largest, A poison, int bits) {
    const A most = bits == 8 ? A(127) : A(7);
    const bool finite = poison == poison, zero = !(largest > A(1e-30));
    scale = (zero ? A(0) : largest / most) + poison;
    factor = finite && !zero ? most / largest : A(0);
  }
  KOKKOS_FUNCTION int integer(A x) const {
    const A value = factor == A(0) ? A(0) : x * factor;
    return int(value + (value < A(0) ? A(-0.5) : A(0.5)));
  }
};

// The byte `i` of a block's integers: one of 8 bits, or two of 4.
template <int bits, class A, class X>
KOKKOS_FUNCTION std::int8_t quantised_byte(const Quantiser<A>& block, std::size_t i, std::size_t count, const X& x) {
  if constexpr (bits == 8) return static_cast<std::int8_t>(block.integer(x(i)));
  const int low = block.integer(x(2 * i)), high = 2 * i + 1 < count ? block.integer(x(2 * i + 1)) : 0;
  return static_cast<std::int8_t>((low & 15) | (high * 16));
}

template <int bits>
KOKKOS_FUNCTION int quantised_integer(const std::int8_t* integers, std::size_t i) {
  if constexpr (bits == 8) return integers[i];
  const int both = integers[i / 2], low = both & 15;
  return i % 2 == 1 ? (both - low) / 16 : low < 8 ? low : low - 16;
}

}  // namespace detail

/// integers[i] = x[i] / scale, rounded; scales[b] = max |x| over block b, divided by 127 (4 bits: 7). A block with a number that
/// is not finite is dequantised to NaN, a block below 1e-30 to zeros.
template <class T, int bits = 8, class Exec>
requires(detail::on_host<Exec>) void quantise(Device<Exec>& device, std::size_t n, const T* x, std::int8_t* integers,
                                              accumulate_t<T>* scales) {
  using A = accumulate_t<T>;
  detail::for_each(
      device, {"quantise", n * sizeof(T) + quantised_bytes(n, bits) + quantised_blocks(n) * sizeof(A)}, quantised_blocks(n),
      KOKKOS_LAMBDA(std::size_t block) {
        const std::size_t begin = block * quantised_block, here = n - begin < quantised_block ? n - begin : quantised_block;
        A largest = A(0), poison = A(0);
        for (std::size_t i = 0; i < here; ++i) {
          const A value = A(x[begin + i]), size = value < A(0) ? -value : value;
          largest = size > largest ? size : largest;
          poison += value * A(0);
        }
        const detail::Quantiser<A> quantiser(largest, poison, bits);
        scales[block] = quantiser.scale;
        std::int8_t* out = integers + quantised_bytes(begin, bits);
        for (std::size_t i = 0; i < quantised_bytes(here, bits); ++i)
          out[i] = detail::quantised_byte<bits>(quantiser, i, here, [&](std::size_t k) { return A(x[begin + k]); });
      });
}

template <class T, int bits = 8, class Exec>
requires(!detail::on_host<Exec>) void quantise(Device<Exec>& device, std::size_t n, const T* x, std::int8_t* integers,
                                               accumulate_t<T>* scales) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"quantise", n * sizeof(T) + quantised_bytes(n, bits) + quantised_blocks(n) * sizeof(A)}, quantised_blocks(n),
      KOKKOS_LAMBDA(std::size_t block, Team team) {
        const std::size_t begin = block * quantised_block, here = n - begin < quantised_block ? n - begin : quantised_block;
        const A largest = team.template largest<A>(here, A(0), [&](std::size_t i) {
          const A value = A(x[begin + i]);
          return value < A(0) ? -value : value;
        });
        const A poison = team.template total<A>(here, [&](std::size_t i, A& sum) { sum += A(x[begin + i]) * A(0); });
        const detail::Quantiser<A> quantiser(largest, poison, bits);
        if (team.leads()) scales[block] = quantiser.scale;
        std::int8_t* out = integers + quantised_bytes(begin, bits);
        team.each(quantised_bytes(here, bits), [&](std::size_t i) {
          out[i] = detail::quantised_byte<bits>(quantiser, i, here, [&](std::size_t k) { return A(x[begin + k]); });
        });
      });
}

/// out[i] = integers[i] * the scale of its block; with `adds`, it is added to out[i].
template <class T, int bits = 8, class Exec>
void dequantise(Device<Exec>& device, std::size_t n, const std::int8_t* integers, const accumulate_t<T>* scales, T* out,
                bool adds = false) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"quantise", n * (adds ? 2 : 1) * sizeof(T) + quantised_bytes(n, bits) + quantised_blocks(n) * sizeof(A)},
      quantised_blocks(n), KOKKOS_LAMBDA(std::size_t block, Team team) {
        const std::size_t begin = block * quantised_block, here = n - begin < quantised_block ? n - begin : quantised_block;
        const A scale = scales[block];
        team.each(here, [&](std::size_t i) {
          const A value = A(detail::quantised_integer<bits>(integers, begin + i)) * scale;
          out[begin + i] = T(adds ? A(out[begin + i]) + value : value);
        });
      });
}

}  // namespace weft::kernels
