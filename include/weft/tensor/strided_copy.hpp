// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies between arrays of any layout and row-major ones, each by one kernel, which also rounds to the type of the result.
//
//   copy_from_strided(device, strided_of(view), x.data());   // x [samples, ...] = the View's elements
//   copy_to_strided(device, y.data(), strided_of(view));

#include <memory>
#include <type_traits>

#include <Kokkos_Core.hpp>

#include <weft/device/host_copies.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/permute.hpp>
#include <weft/tensor/strided_array.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Whether kernels of Exec read memory of this space.
template <class Exec, class Space>
inline constexpr bool reads_memory = Kokkos::SpaceAccessibility<Exec, Space>::accessible;

template <class T, class Exec, KokkosView V>
StridedArray<T> strided_on(Device<Exec>&, const V& view) {
  static_assert(reads_memory<Exec, typename V::memory_space>,
                "weft: this View lies in memory that the kernels of weft's device do not read: copy it to the memory space of "
                "Kokkos::DefaultExecutionSpace, or give a View of host memory without the device, batch[field].view(view)");
  return elements_of<T>(view);
}

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

/// The elements as a tensor: where they lie if they are row-major and of X's element type, else copied by one kernel. The first
/// has no owner, so that no operation takes the memory for its result.
template <AnyTensor X, class T>
X tensor_of(typename X::device_type& device, const StridedArray<T>& from) {
  using S = typename X::value_type;
  if constexpr (std::is_same_v<std::remove_const_t<T>, S>) {
    if (from.row_major())
      return X(device, from.shape, Buffer(std::shared_ptr<void>(std::shared_ptr<void>(), const_cast<S*>(from.data))));
  }
  X x(device, from.shape);
  copy_from_strided(device, from, x.data());
  return x;
}

template <class Exec, class T>
void fetch_elements(Device<Exec>& device, const StridedArray<const T>& from, T* out) {
  if constexpr (on_host<Exec>) {
    copy_from_strided(device, from, out);
    device.exec().fence("weft: elements for the host");
  } else {
    const Tensor<T, Exec> packed(device, from.shape);
    copy_from_strided(device, from, packed.data());
    copy_from_device(device, out, packed.data(), packed.size() * sizeof(T));
    device.exec().fence("weft: elements for the host");
  }
}

}  // namespace weft::detail
