// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays repeated along dims of one element (broadcasting), and arrays placed inside larger ones.
//
//   const std::size_t row[] = {1, 1, 1, 8}, whole[] = {1, 1, 5, 8};
//   kernels::expand(device, row, whole, x, y);   // y[r, c] = x[c]

#include <cstddef>
#include <span>

#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>

namespace weft::kernels {

/// y = x, repeated along each dim in which x has one element. Extents are of four dims, slowest first; those of x are 1 or y's.
template <class T, class Exec>
void expand(Device<Exec>& device, std::span<const std::size_t, 4> from, std::span<const std::size_t, 4> to, const T* x, T* y) {
  std::size_t stride = 1, steps[4];
  for (std::size_t d = 4; d-- > 0;) {
    steps[d] = from[d] == 1 ? 0 : stride;
    stride *= from[d];
  }
  const std::size_t s0 = steps[0], s1 = steps[1], s2 = steps[2], s3 = steps[3], n1 = to[1], n2 = to[2], columns = to[3];
  weft::detail::for_each_entry(
      device, {"copy", 2 * to[0] * n1 * n2 * columns * sizeof(T)}, to[0] * n1 * n2, columns,
      KOKKOS_LAMBDA(std::size_t row, std::size_t column) {
        y[row * columns + column] = x[row / n2 / n1 * s0 + row / n2 % n1 * s1 + row % n2 * s2 + column * s3];
      });
}

}  // namespace weft::kernels
