// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays repeated along dims of one element (broadcasting): copies, and functions of two such arrays.
//
//   const std::size_t row[] = {1, 1, 1, 1, 1, 8}, whole[] = {1, 1, 1, 1, 5, 8};
//   kernels::expand(device, row, whole, x, y);   // y[r, c] = x[c]

#include <cstddef>
#include <span>
#include <utility>

#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/detail/loops.hpp>

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

/// The layout of two arrays' elements in a result: its dims, slowest first, and a stride of each operand, 0 where it is repeated.
/// Adjacent dims in which the same operands are repeated are merged, and dims of one element left out.
struct Expansion {
  static constexpr std::size_t most_dims = 6;
  std::size_t count = 0, extents[most_dims] = {}, x[most_dims] = {}, y[most_dims] = {};

  /// The next faster dim; `in_x`, `in_y`: whether the operand has all of its elements, and is not repeated.
  void add(std::size_t extent, bool in_x, bool in_y) {
    if (extent == 1) return;
    if (count != 0 && bool(x[count - 1]) == in_x && bool(y[count - 1]) == in_y) {
      extents[count - 1] *= extent;
    } else {
      extents[count] = extent;
      x[count] = in_x;
      y[count++] = in_y;
    }
  }
  /// Gives the dims their strides, once all are added.
  void finish() {
    if (count == 0) {
      extents[0] = x[0] = y[0] = count = 1;
      return;
    }
    std::size_t in_x = 1, in_y = 1;
    for (std::size_t d = count; d-- > 0;) {
      if (x[d] != 0) x[d] = std::exchange(in_x, in_x * extents[d]);
      if (y[d] != 0) y[d] = std::exchange(in_y, in_y * extents[d]);
    }
  }
  std::size_t columns() const { return extents[count - 1]; }
  std::size_t rows() const {
    std::size_t product = 1;
    for (std::size_t d = 0; d + 1 < count; ++d) product *= extents[d];
    return product;
  }
};

/// z = f(x, y) of each pair of elements, in lanes; z has no repeated elements and is neither x nor y.
template <class T, class Exec, class F>
void map_expanded(Device<Exec>& device, const Expansion& e, const T* x, const T* y, T* z, F f) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  constexpr std::size_t piece = weft::detail::on_host<Exec> ? 4096 : V::size;
  const std::size_t rows = e.rows(), columns = e.columns(), pieces = (columns + piece - 1) / piece;
  const bool x_repeats = e.x[e.count - 1] == 0, y_repeats = e.y[e.count - 1] == 0;
  detail::for_each(
      device, {"elementwise", 3 * rows * columns * sizeof(T)}, rows * pieces, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t row = item / pieces, first = item % pieces * piece,
                          here = columns - first < piece ? columns - first : piece;
        std::size_t from_x = x_repeats ? 0 : first, from_y = y_repeats ? 0 : first, left = row;
        for (std::size_t d = e.count - 1; d-- > 0; left /= e.extents[d]) {
          from_x += left % e.extents[d] * e.x[d];
          from_y += left % e.extents[d] * e.y[d];
        }
        T* to = z + row * columns + first;
        const V same_x = V(A(x[from_x])), same_y = V(A(y[from_y]));
        detail::sweep<V>(here, [&](std::size_t i, std::size_t count) {
          const V a = x_repeats ? same_x : V::load(x + from_x + i, count),
                  b = y_repeats ? same_y : V::load(y + from_y + i, count);
          f(a, b).store(to + i, count);
        });
      });
}

}  // namespace weft::kernels
