// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays repeated along dims of one element (broadcasting), and arrays placed inside larger ones.
//
//   const std::size_t row[] = {1, 1, 1, 1, 1, 8}, whole[] = {1, 1, 1, 1, 5, 8};
//   kernels::expand(device, row, whole, x, y);   // y[r, c] = x[c]

#include <cstddef>
#include <span>

#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>

namespace weft::kernels {

/// y = x, repeated along each dim in which x has one element. Extents are of six dims, slowest first; those of x are 1 or y's.
template <class T, class Exec>
void expand(Device<Exec>& device, std::span<const std::size_t, 6> from, std::span<const std::size_t, 6> to, const T* x, T* y) {
  std::size_t stride = 1, steps[6];
  for (std::size_t d = 6; d-- > 0;) {
    steps[d] = from[d] == 1 ? 0 : stride;
    stride *= from[d];
  }
  const std::size_t s0 = steps[0], s1 = steps[1], s2 = steps[2], s3 = steps[3], s4 = steps[4], s5 = steps[5], n1 = to[1],
                    n2 = to[2], n3 = to[3], n4 = to[4], columns = to[5], rows = to[0] * n1 * n2 * n3 * n4;
  weft::detail::for_each_entry(
      device, {"copy", 2 * rows * columns * sizeof(T)}, rows, columns, KOKKOS_LAMBDA(std::size_t row, std::size_t column) {
        const std::size_t r3 = row / n4, r2 = r3 / n3, r1 = r2 / n2;
        y[row * columns + column] = x[r1 / n1 * s0 + r1 % n1 * s1 + r2 % n2 * s2 + r3 % n3 * s3 + row % n4 * s4 + column * s5];
      });
}

}  // namespace weft::kernels
