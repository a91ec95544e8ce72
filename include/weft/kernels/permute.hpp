// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays with their dims in another order. The two fastest dims are exchanged in squares of 32 by 32 elements, so both arrays are
// read and written in whole cache lines.
//
//   kernels::permute(device, kernels::Permutation(4, extents, dims), x, y);   // y's dim d is x's dim dims[d]

#include <cstddef>

#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// The result's extents, and the operand's strides for its dims, slowest first. Dims that stay adjacent are merged, and those of
/// one element left out.
struct Permutation {
  static constexpr std::size_t most_dims = 6;
  std::size_t count = 0, extents[most_dims] = {}, strides[most_dims] = {};

  /// `operand` are the operand's extents; dim d of the result is its dim dims[d].
  Permutation(std::size_t rank, const std::size_t* operand, const int* dims) {
    std::size_t stride[most_dims] = {1, 1, 1, 1, 1, 1};
    for (std::size_t d = rank; d-- > 1;) stride[d - 1] = stride[d] * operand[d];
    for (std::size_t d = 0; d < rank; ++d) {
      const std::size_t from = std::size_t(dims[d]);
      if (operand[from] == 1) continue;
      if (count != 0 && strides[count - 1] == operand[from] * stride[from]) {
        extents[count - 1] *= operand[from];
        strides[count - 1] = stride[from];
      } else {
        extents[count] = operand[from];
        strides[count++] = stride[from];
      }
    }
    if (count == 0) extents[0] = strides[0] = count = 1;
  }
  std::size_t columns() const { return extents[count - 1]; }
  std::size_t rows() const {
    std::size_t product = 1;
    for (std::size_t d = 0; d + 1 < count; ++d) product *= extents[d];
    return product;
  }
};

namespace detail {

/// Some dims of two arrays: their extents, and both strides of each.
struct StridedDims {
  std::size_t count = 0, extents[Permutation::most_dims] = {}, from[Permutation::most_dims] = {}, to[Permutation::most_dims] = {};
  std::size_t size() const {
    std::size_t product = 1;
    for (std::size_t d = 0; d < count; ++d) product *= extents[d];
    return product;
  }
  void add(std::size_t extent, std::size_t from_stride, std::size_t to_stride) {
    extents[count] = extent;
    from[count] = from_stride;
    to[count++] = to_stride;
  }
  /// The offsets of the item-th element, the last dim fastest.
  KOKKOS_INLINE_FUNCTION void find(std::size_t item, std::size_t& from_offset, std::size_t& to_offset) const {
    from_offset = to_offset = 0;
    for (std::size_t d = count; d-- > 0; item /= extents[d]) {
      from_offset += item % extents[d] * from[d];
      to_offset += item % extents[d] * to[d];
    }
  }
};

}  // namespace detail

/// y = x with its dims in another order.
template <class T, class Exec>
void permute(Device<Exec>& device, const Permutation& p, const T* x, T* y) {
  const std::size_t columns = p.columns(), size = p.rows() * columns, last = p.count - 1;
  if (size == 0) return;
  // The operand's fastest dim is dim `fast` of the result. With the last dim it forms a matrix to transpose, for each of `outer`.
  std::size_t fast = last;
  for (std::size_t d = 0; d < last; ++d)
    if (p.strides[d] == 1) fast = d;
  detail::StridedDims outer;
  std::size_t to_stride = size, to_row = 1;
  for (std::size_t d = 0; d < last; ++d) {
    to_stride /= p.extents[d];
    if (d == fast) to_row = to_stride;
    else outer.add(p.extents[d], p.strides[d], to_stride);
  }
  if (fast == last)
    return detail::for_each(
        device, {"copy", 2 * size * sizeof(T)}, outer.size(), KOKKOS_LAMBDA(std::size_t row) {
          std::size_t from_offset, to_offset;
          outer.find(row, from_offset, to_offset);
          for (std::size_t i = 0; i < columns; ++i) y[to_offset + i] = x[from_offset + i];
        });
  constexpr std::size_t square = 32;
  const std::size_t rows = p.extents[fast], blocks = (rows + square - 1) / square, from_column = p.strides[last];
  detail::for_each(
      device, {"copy", 2 * size * sizeof(T)}, outer.size() * blocks, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t first = item % blocks * square, end_row = first + square < rows ? first + square : rows;
        std::size_t from_offset, to_offset;
        outer.find(item / blocks, from_offset, to_offset);
        const T* from = x + from_offset;
        T* to = y + to_offset;
        for (std::size_t c = 0; c < columns; c += square) {
          const std::size_t end = c + square < columns ? c + square : columns;
          for (std::size_t r = first; r < end_row; ++r)
            for (std::size_t j = c; j < end; ++j) to[r * to_row + j] = from[r + j * from_column];
        }
      });
}

}  // namespace weft::kernels
