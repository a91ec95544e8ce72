// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements in a program's memory in any layout: their extents, and the distance between neighbours in each dim. Made from a
// Kokkos View (LayoutRight, LayoutLeft, LayoutStride, a part of a larger View) or from a contiguous range.
//
//   const auto u = detail::strided_of(view);   // StridedArray<const double>, [samples, ...]
//   if (!u.row_major()) copy_from_strided(device, u, values);   // tensor/strided_copy.hpp

#include <array>
#include <concepts>
#include <cstddef>
#include <ranges>
#include <type_traits>

#include <weft/tensor/shape.hpp>

namespace weft {

template <class Exec>
class Device;

namespace detail {

/// A Kokkos View, or something with its members.
template <class V>
concept KokkosView = requires(const V& view) {
  typename V::memory_space;
  typename V::host_mirror_space;
  typename V::value_type;
  { view.extent(0) } -> std::convertible_to<std::size_t>;
  { view.stride(0) } -> std::convertible_to<std::size_t>;
  view.data();
  V::rank();
};

/// The distance between neighbours in each dim, in elements.
using Strides = std::array<std::size_t, Shape::max_rank>;

inline Strides row_major_strides(const Shape& shape) {
  Strides strides{};
  std::size_t stride = 1;
  for (std::size_t dim = shape.rank(); dim-- > 0; stride *= shape[dim]) strides[dim] = stride;
  return strides;
}

/// Elements of type T, const if they are only read.
template <class T>
struct StridedArray {
  T* data = nullptr;
  Shape shape = {};
  Strides strides = {};

  /// Whether the elements are contiguous, with the last dim fastest.
  bool row_major() const {
    const Strides wanted = row_major_strides(shape);
    bool is = true;
    for (std::size_t dim = 0; dim < shape.rank(); ++dim) is = is && (shape[dim] <= 1 || strides[dim] == wanted[dim]);
    return is || shape.size() == 0;
  }
};

/// Copies the elements to `out` in row-major order, on the calling thread. tensor/strided_copy.hpp uses a device's threads.
template <class T>
void copy_elements(const StridedArray<T>& from, std::remove_const_t<T>* out) {
  const std::size_t rank = from.shape.rank(), size = from.shape.size();
  Strides index{};
  std::size_t at = 0;
  for (std::size_t i = 0; i < size; ++i) {
    out[i] = from.data[at];
    for (std::size_t dim = rank; dim-- > 0;) {
      at += from.strides[dim];
      if (++index[dim] < from.shape[dim]) break;
      at -= index[dim] * from.strides[dim];
      index[dim] = 0;
    }
  }
}

/// The elements of a View of any memory; const if T is.
template <class T, KokkosView V>
StridedArray<T> elements_of(const V& view) {
  static_assert(V::rank() <= Shape::max_rank, "weft: a tensor has at most six dims, and this View has more");
  StridedArray<T> all{view.data(), Shape::of_rank(V::rank())};
  for (std::size_t dim = 0; dim < V::rank(); ++dim) {
    all.shape[dim] = view.extent(dim);
    all.strides[dim] = view.stride(dim);
  }
  return all;
}
/// The same of host memory.
template <class T, KokkosView V>
StridedArray<T> strided_of(const V& view) {
  static_assert(std::is_same_v<typename V::memory_space, typename V::host_mirror_space::memory_space>,
                "weft: this View is not of host memory: give a View of it (Kokkos::create_mirror_view_and_copy)");
  return elements_of<T>(view);
}
template <KokkosView V>
auto strided_of(const V& view) {
  return strided_of<typename V::value_type>(view);
}
template <class T>
StridedArray<T> strided_of(const StridedArray<T>& array) {
  return array;
}
/// The same of memory that the kernels of a device read (tensor/strided_copy.hpp).
template <class T, class Exec, KokkosView V>
StridedArray<T> strided_on(Device<Exec>& device, const V& view);
/// Elements that kernels of an execution space read, and a host perhaps does not.
template <class T, class Exec>
struct DeviceArray {
  using value_type = T;
  using non_const_value_type = std::remove_const_t<T>;
  StridedArray<T> elements;
  static constexpr std::size_t rank() { return Shape::max_rank; }  ///< at most
};
template <class U, class T, class Exec>
StridedArray<U> strided_on(Device<Exec>&, const DeviceArray<T, Exec>& array) {
  return {array.elements.data, array.elements.shape, array.elements.strides};
}
/// Copies elements that the device's kernels read to `out` in host memory, in row-major order (tensor/strided_copy.hpp).
template <class Exec, class T>
void fetch_elements(Device<Exec>& device, const StridedArray<const T>& from, T* out);
/// The elements of a contiguous range as one row, [1, size].
template <std::ranges::contiguous_range R>
auto strided_of(R& range) {
  const std::size_t size = std::ranges::size(range);
  return StridedArray<std::remove_pointer_t<decltype(std::ranges::data(range))>>{
      std::ranges::data(range), Shape{1, size}, {size, 1}};
}

}  // namespace detail

}  // namespace weft
