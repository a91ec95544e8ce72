// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantisation to 8-bit integers with one scale per block of 256 numbers, and back (ZeRO++, arXiv:2306.10209, section 3.1).
//
//   kernels::quantise(device, n, x, integers, scales);      // |x - integer * scale| <= max|x| of the block / 127 / 2
//   kernels::dequantise(device, n, integers, scales, y);

#include <cstddef>
#include <cstdint>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

inline constexpr std::size_t quantised_block = 256;
/// The number of scales for n numbers.
constexpr std::size_t quantised_blocks(std::size_t n) { return (n + quantised_block - 1) / quantised_block; }

/// integers[i] = x[i] / scale, rounded; scales[b] = max |x| over block b, divided by 127. A block with a number that is not
/// finite is dequantised to NaN, a block below 1e-30 to zeros.
template <class T, class Exec>
requires(detail::on_host<Exec>) void quantise(Device<Exec>& device, std::size_t n, const T* x, std::int8_t* integers,
                                              accumulate_t<T>* scales) {
  using A = accumulate_t<T>;
  detail::for_each(
      device, {"quantise", n * (sizeof(T) + 1) + quantised_blocks(n) * sizeof(A)}, quantised_blocks(n),
      KOKKOS_LAMBDA(std::size_t block) {
        const std::size_t begin = block * quantised_block, end = begin + quantised_block < n ? begin + quantised_block : n;
        A largest = A(0), poison = A(0);
        for (std::size_t i = begin; i < end; ++i) {
          const A value = A(x[i]), size = value < A(0) ? -value : value;
          largest = size > largest ? size : largest;
          poison += value * A(0);
        }
        const bool finite = poison == poison, zero = !(largest > A(1e-30));
        const A scale = zero ? A(0) : largest / A(127);
        const A factor = finite && !zero ? A(127) / largest : A(0);
        scales[block] = scale + poison;
        for (std::size_t i = begin; i < end; ++i) {
          const A value = finite ? A(x[i]) * factor : A(0);
          integers[i] = static_cast<std::int8_t>(value + (value < A(0) ? A(-0.5) : A(0.5)));
        }
      });
}

template <class T, class Exec>
requires(!detail::on_host<Exec>) void quantise(Device<Exec>& device, std::size_t n, const T* x, std::int8_t* integers,
                                               accumulate_t<T>* scales) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"quantise", n * (sizeof(T) + 1) + quantised_blocks(n) * sizeof(A)}, quantised_blocks(n),
      KOKKOS_LAMBDA(std::size_t block, Team team) {
        const std::size_t begin = block * quantised_block, here = n - begin < quantised_block ? n - begin : quantised_block;
        const A largest = team.template largest<A>(here, A(0), [&](std::size_t i) {
          const A value = A(x[begin + i]);
          return value < A(0) ? -value : value;
        });
        const A poison = team.template total<A>(here, [&](std::size_t i, A& sum) { sum += A(x[begin + i]) * A(0); });
        const bool finite = poison == poison, zero = !(largest > A(1e-30));
        const A scale = zero ? A(0) : largest / A(127);
        const A factor = finite && !zero ? A(127) / largest : A(0);
        if (team.leads()) scales[block] = scale + poison;
        team.each(here, [&](std::size_t i) {
          const A value = finite ? A(x[begin + i]) * factor : A(0);
          integers[begin + i] = static_cast<std::int8_t>(value + (value < A(0) ? A(-0.5) : A(0.5)));
        });
      });
}

/// out[i] = integers[i] * the scale of its block.
template <class T, class Exec>
void dequantise(Device<Exec>& device, std::size_t n, const std::int8_t* integers, const accumulate_t<T>* scales, T* out) {
  using A = accumulate_t<T>;
  using Team = detail::row_team<Exec>;
  detail::for_each_row(
      device, {"quantise", n * (sizeof(T) + 1) + quantised_blocks(n) * sizeof(A)}, quantised_blocks(n),
      KOKKOS_LAMBDA(std::size_t block, Team team) {
        const std::size_t begin = block * quantised_block, here = n - begin < quantised_block ? n - begin : quantised_block;
        const A scale = scales[block];
        team.each(here, [&](std::size_t i) { out[begin + i] = T(A(integers[begin + i]) * scale); });
      });
}

}  // namespace weft::kernels
