// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies between arrays of any layout and row-major ones, each by one kernel, which also rounds to the type of the result.
//
//   copy_from_strided(device, strided_of(view), x.data());   // x [samples, ...] = the View's elements
//   copy_to_strided(device, y.data(), strided_of(view));

#include <weft/kernels/permute.hpp>
#include <weft/tensor/strided_array.hpp>

namespace weft::detail {

/// out[i] = the i-th element in row-major order; `out` has shape.size() elements.
template <class T, class U, class Exec>
void copy_from_strided(Device<Exec>& device, const StridedArray<T>& from, U* out) {
  const Strides rows = row_major_strides(from.shape);
  Strides extents{};
  for (std::size_t dim = 0; dim < from.shape.rank(); ++dim) extents[dim] = from.shape[dim];
  kernels::permute(device, kernels::Permutation(from.shape.rank(), extents.data(), from.strides.data(), rows.data()), from.data,
                   out);
}
/// The opposite. The elements of `to` must not overlap.
template <class T, class U, class Exec>
void copy_to_strided(Device<Exec>& device, const T* from, const StridedArray<U>& to) {
  const Strides rows = row_major_strides(to.shape);
  Strides extents{};
  for (std::size_t dim = 0; dim < to.shape.rank(); ++dim) extents[dim] = to.shape[dim];
  kernels::permute(device, kernels::Permutation(to.shape.rank(), extents.data(), rows.data(), to.strides.data()), from, to.data);
}

}  // namespace weft::detail
