// SPDX-License-Identifier: Apache-2.0
#pragma once
// One dim of a tensor with the dims around it, and the copies of rows along it.
//
//   const Around around(shape, 2);   // outer rows of extent * inner elements
//   copy_rows(device, around.outer, count * around.inner, x, around.extent * around.inner, strip, count * around.inner);

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/device/parallel_for.hpp>
#include <weft/tensor/shape.hpp>

namespace weft::detail {

// Copies rows of `width` elements, `from_stride` and `to_stride` elements apart.
template <class Exec, class T>
void copy_rows(Device<Exec>& device, std::size_t rows, std::size_t width, const T* from, std::size_t from_stride, T* to,
               std::size_t to_stride) {
  for_each_entry(
      device, {"copy", 2 * rows * width * sizeof(T)}, rows, width,
      KOKKOS_LAMBDA(const std::size_t row, const std::size_t i) { to[row * to_stride + i] = from[row * from_stride + i]; });
}

template <class Exec, class T>
void fill_zero(Device<Exec>& device, T* data, std::size_t size) {
  for_each_index(
      device, {"fill", size * sizeof(T)}, size, KOKKOS_LAMBDA(const std::size_t i) { data[i] = T{}; });
}

// A shape and one of its dims: `outer` rows of `extent * inner` elements.
struct Around {
  std::size_t outer = 1, extent = 1, inner = 1;
  Around(const Shape& shape, std::size_t dim) {
    for (std::size_t d = 0; d < shape.rank(); ++d) (d < dim ? outer : d == dim ? extent : inner) *= shape[d];
  }
};

inline Shape with_extent(Shape shape, std::size_t dim, std::size_t extent) {
  shape[dim] = extent;
  return shape;
}

}  // namespace weft::detail
