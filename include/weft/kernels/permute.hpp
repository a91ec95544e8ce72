// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays with their dims in another order. The two fastest dims are exchanged in squares of 32 by 32 elements, so both arrays are
// read and written in whole cache lines.
//
//   kernels::permute(device, kernels::Permutation(4, extents, dims), x, y);   // y's dim d is x's dim dims[d]

#include <cstddef>

#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// The result's extents, and the operand's strides for its dims, slowest first. Dims that stay adjacent are merged.
struct Permutation {
  std::size_t extents[4] = {1, 1, 1, 1}, strides[4] = {0, 0, 0, 0};

  /// `extents` are the operand's; dim d of the result is its dim dims[d].
  Permutation(std::size_t rank, const std::size_t* operand, const int* dims) {
    std::size_t stride[4] = {1, 1, 1, 1}, count = 0, extent[4] = {}, step[4] = {};
    for (std::size_t d = rank; d-- > 1;) stride[d - 1] = stride[d] * operand[d];
    for (std::size_t d = 0; d < rank; ++d) {
      const std::size_t from = std::size_t(dims[d]);
      if (operand[from] == 1) continue;
      if (count != 0 && step[count - 1] == operand[from] * stride[from]) {
        extent[count - 1] *= operand[from];
        step[count - 1] = stride[from];
      } else {
        extent[count] = operand[from];
        step[count++] = stride[from];
      }
    }
    for (std::size_t d = 0; d < count; ++d) {
      extents[4 - count + d] = extent[d];
      strides[4 - count + d] = step[d];
    }
    if (count == 0) strides[3] = 1;
  }
  std::size_t rows() const { return extents[0] * extents[1] * extents[2]; }
};

/// y = x with its dims in another order.
template <class T, class Exec>
void permute(Device<Exec>& device, const Permutation& p, const T* x, T* y) {
  if (p.rows() * p.extents[3] == 0) return;
  if (p.strides[3] == 1)
    return detail::for_each(
        device, {"copy", 2 * p.rows() * p.extents[3] * sizeof(T)}, p.rows(), KOKKOS_LAMBDA(std::size_t row) {
          const std::size_t c = row % p.extents[2], b = row / p.extents[2] % p.extents[1], a = row / p.extents[2] / p.extents[1];
          const T* from = x + a * p.strides[0] + b * p.strides[1] + c * p.strides[2];
          T* to = y + row * p.extents[3];
          for (std::size_t i = 0; i < p.extents[3]; ++i) to[i] = from[i];
        });
  // The operand's fastest dim is dim `fast` of the result. With the last dim it forms a matrix to transpose, for each u and v.
  const int fast = p.strides[2] == 1 ? 2 : p.strides[1] == 1 ? 1 : 0, u = fast == 0 ? 1 : 0, v = fast == 2 ? 1 : 2;
  constexpr std::size_t square = 32;
  std::size_t to_stride[4] = {1, 1, 1, 1};
  for (int d = 3; d > 0; --d) to_stride[d - 1] = to_stride[d] * p.extents[d];
  const std::size_t rows = p.extents[fast], columns = p.extents[3], blocks = (rows + square - 1) / square, us = p.extents[u],
                    vs = p.extents[v], from_u = p.strides[u], from_v = p.strides[v], to_u = to_stride[u], to_v = to_stride[v],
                    from_column = p.strides[3], to_row = to_stride[fast];
  detail::for_each(
      device, {"copy", 2 * p.rows() * p.extents[3] * sizeof(T)}, us * vs * blocks, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t first = item % blocks * square, last = first + square < rows ? first + square : rows,
                          matrix = item / blocks;
        const T* from = x + matrix / vs * from_u + matrix % vs * from_v;
        T* to = y + matrix / vs * to_u + matrix % vs * to_v;
        for (std::size_t c = 0; c < columns; c += square) {
          const std::size_t end = c + square < columns ? c + square : columns;
          for (std::size_t r = first; r < last; ++r)
            for (std::size_t j = c; j < end; ++j) to[r * to_row + j] = from[r + j * from_column];
        }
      });
}

}  // namespace weft::kernels
