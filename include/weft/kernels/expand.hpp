// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays repeated along dims of one element (broadcasting): copies, and functions and comparisons of two such arrays.
//
//   const std::size_t row[] = {1, 1, 1, 1, 1, 8}, whole[] = {1, 1, 1, 1, 5, 8};
//   kernels::expand(device, row, whole, x, y);   // y[r, c] = x[c]

#include <cstddef>
#include <cstdint>
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

/// Calls f(at, count, x, y, x_repeats, y_repeats) for each run of at most `Piece` adjacent elements of the result, of which `at`
/// is the first. x and y point to the first operands of the run, of which one may be repeated for all of it.
template <std::size_t Piece, class T, class Exec, class F>
void for_expanded_runs(Device<Exec>& device, std::size_t result_bytes, const Expansion& e, const T* x, const T* y, F f) {
  constexpr std::size_t piece = weft::detail::on_host<Exec> ? 4096 : Piece;
  const std::size_t rows = e.rows(), columns = e.columns(), pieces = (columns + piece - 1) / piece;
  const bool x_repeats = e.x[e.count - 1] == 0, y_repeats = e.y[e.count - 1] == 0;
  detail::for_each(
      device, {"elementwise", rows * columns * (2 * sizeof(T) + result_bytes)}, rows * pieces, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t row = item / pieces, first = item % pieces * piece,
                          here = columns - first < piece ? columns - first : piece;
        std::size_t from_x = x_repeats ? 0 : first, from_y = y_repeats ? 0 : first, left = row;
        for (std::size_t d = e.count - 1; d-- > 0; left /= e.extents[d]) {
          from_x += left % e.extents[d] * e.x[d];
          from_y += left % e.extents[d] * e.y[d];
        }
        f(row * columns + first, here, x + from_x, y + from_y, x_repeats, y_repeats);
      });
}

/// z = f(x, y) of each pair of elements, in lanes; z has no repeated elements and is neither x nor y.
template <class T, class Exec, class F>
void map_expanded(Device<Exec>& device, const Expansion& e, const T* x, const T* y, T* z, F f) {
  using V = detail::lanes_for<Exec, T>;
  using A = accumulate_t<T>;
  for_expanded_runs<V::size>(
      device, sizeof(T), e, x, y,
      KOKKOS_LAMBDA(std::size_t at, std::size_t run, const T* left, const T* right, bool left_repeats, bool right_repeats) {
        T* to = z + at;
        const V same_left = V(A(*left)), same_right = V(A(*right));
        detail::sweep<V>(run, [&](std::size_t i, std::size_t count) {
          const V a = left_repeats ? same_left : V::load(left + i, count),
                  b = right_repeats ? same_right : V::load(right + i, count);
          f(a, b).store(to + i, count);
        });
      });
}

/// z = 1 if holds(x, y) of a pair of elements, else 0.
template <class T, class Exec, class F>
void compare_expanded(Device<Exec>& device, const Expansion& e, const T* x, const T* y, std::uint8_t* z, F holds) {
  using A = accumulate_t<T>;
  constexpr std::size_t on_device = 8;
  for_expanded_runs<on_device>(
      device, 1, e, x, y,
      KOKKOS_LAMBDA(std::size_t at, std::size_t run, const T* left, const T* right, bool left_repeats, bool right_repeats) {
        // Copies in registers, as in kernels::compare.
        std::uint8_t* const to = z + at;
        const F f = holds;
        const A same_left = A(*left), same_right = A(*right);
        if (left_repeats)
          for (std::size_t i = 0; i < run; ++i) to[i] = std::uint8_t(f(same_left, A(right[i])));
        else if (right_repeats)
          for (std::size_t i = 0; i < run; ++i) to[i] = std::uint8_t(f(A(left[i]), same_right));
        else
          for (std::size_t i = 0; i < run; ++i) to[i] = std::uint8_t(f(A(left[i]), A(right[i])));
      });
}

}  // namespace weft::kernels
