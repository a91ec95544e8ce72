// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays with their dims in another order, or with gaps between their elements. The fastest dims of both arrays are exchanged in
// squares of 32 by 32 elements, so both arrays are read and written in whole cache lines.
//
//   kernels::permute(device, kernels::Permutation(4, extents, dims), x, y);   // y's dim d is x's dim dims[d]
//   kernels::permute(device, kernels::Permutation(2, extents, from, to), x, y);   // both by their strides

#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

/// The extents of the elements that two arrays share, and both strides of each dim; the result's slowest dim first. Dims that
/// stay adjacent in both arrays are merged, and those of one element left out.
struct Permutation {
  static constexpr std::size_t most_dims = 6;
  std::size_t count = 0, extents[most_dims] = {}, strides[most_dims] = {}, to[most_dims] = {};

  /// `operand` are the operand's extents; dim d of the result is its dim dims[d]. Both arrays are contiguous.
  Permutation(std::size_t rank, const std::size_t* operand, const int* dims) {
    std::size_t from[most_dims] = {1, 1, 1, 1, 1, 1}, to_stride = 1;
    for (std::size_t d = rank; d-- > 1;) from[d - 1] = from[d] * operand[d];
    for (std::size_t d = 0; d < rank; ++d) to_stride *= operand[d];
    for (std::size_t d = 0; d < rank; ++d) {
      const std::size_t extent = operand[dims[d]];
      to_stride = extent == 0 ? 0 : to_stride / extent;
      add(extent, from[dims[d]], to_stride);
    }
    finish();
  }
  /// `rank` dims of these extents, at most most_dims, and the distance between neighbours in each array, in elements. The
  /// result's elements must not overlap.
  Permutation(std::size_t rank, const std::size_t* extent, const std::size_t* from, const std::size_t* result) {
    std::size_t order[most_dims] = {0, 1, 2, 3, 4, 5};
    for (std::size_t d = 1; d < rank; ++d)  // equal strides keep their order
      for (std::size_t at = d; at > 0 && result[order[at]] > result[order[at - 1]]; --at) std::swap(order[at], order[at - 1]);
    for (std::size_t d = 0; d < rank; ++d) add(extent[order[d]], from[order[d]], result[order[d]]);
    finish();
  }
  std::size_t columns() const { return extents[count - 1]; }
  std::size_t rows() const {
    std::size_t product = 1;
    for (std::size_t d = 0; d + 1 < count; ++d) product *= extents[d];
    return product;
  }

 private:
  void add(std::size_t extent, std::size_t from_stride, std::size_t to_stride) {
    if (extent == 1) return;
    if (count != 0 && strides[count - 1] == extent * from_stride && to[count - 1] == extent * to_stride) {
      extents[--count] *= extent;
    } else {
      extents[count] = extent;
    }
    strides[count] = from_stride;
    to[count++] = to_stride;
  }
  void finish() {
    if (count == 0) extents[0] = strides[0] = to[0] = count = 1;
  }
};

namespace detail {

/// to = from, in To's type: CastOne's rounding for real numbers.
template <class From, class To>
KOKKOS_FORCEINLINE_FUNCTION void put_rounded(To& to, const From& from) {
  if constexpr (std::is_same_v<From, To>) to = from;
  else if constexpr (std::is_integral_v<From> || std::is_integral_v<To>) to = static_cast<To>(from);
  else to = static_cast<To>(static_cast<accumulate_t<To>>(static_cast<accumulate_t<From>>(from)));
}

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

/// y = x with its dims in another order, rounded to U.
template <class T, class U, class Exec>
void permute(Device<Exec>& device, const Permutation& p, const T* x, U* y) {
  const std::size_t columns = p.columns(), size = p.rows() * columns, last = p.count - 1;
  if (size == 0) return;
  // The operand's fastest dim is dim `fast` of the result. With the last dim it forms a matrix to transpose, for each of `outer`.
  std::size_t fast = last;
  for (std::size_t d = 0; d < last; ++d)
    if (p.strides[d] < p.strides[fast]) fast = d;
  detail::StridedDims outer;
  for (std::size_t d = 0; d < last; ++d)
    if (d != fast) outer.add(p.extents[d], p.strides[d], p.to[d]);
  const weft::detail::Traffic traffic{"copy", size * (sizeof(T) + sizeof(U))};
  const std::size_t from_column = p.strides[last], to_column = p.to[last];
  if (fast == last) {
    const bool adjacent = from_column == 1 && to_column == 1;
    return detail::for_each(
        device, traffic, outer.size(), KOKKOS_LAMBDA(std::size_t row) {
          std::size_t from_offset, to_offset;
          outer.find(row, from_offset, to_offset);
          const T* from = x + from_offset;
          U* to = y + to_offset;
          if (adjacent)
            for (std::size_t i = 0; i < columns; ++i) detail::put_rounded(to[i], from[i]);
          else
            for (std::size_t i = 0; i < columns; ++i) detail::put_rounded(to[i * to_column], from[i * from_column]);
        });
  }
  constexpr std::size_t square = 32;
  const std::size_t rows = p.extents[fast], blocks = (rows + square - 1) / square, from_row = p.strides[fast],
                    to_row = p.to[fast];
  detail::for_each(
      device, traffic, outer.size() * blocks, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t first = item % blocks * square, end_row = first + square < rows ? first + square : rows;
        std::size_t from_offset, to_offset;
        outer.find(item / blocks, from_offset, to_offset);
        const T* from = x + from_offset;
        U* to = y + to_offset;
        for (std::size_t c = 0; c < columns; c += square) {
          const std::size_t end = c + square < columns ? c + square : columns;
          if (from_row == 1 && to_column == 1) {
            for (std::size_t r = first; r < end_row; ++r)
              for (std::size_t j = c; j < end; ++j) detail::put_rounded(to[r * to_row + j], from[r + j * from_column]);
          } else {
            for (std::size_t r = first; r < end_row; ++r)
              for (std::size_t j = c; j < end; ++j)
                detail::put_rounded(to[r * to_row + j * to_column], from[r * from_row + j * from_column]);
          }
        }
      });
}

}  // namespace weft::kernels
