// SPDX-License-Identifier: Apache-2.0
#pragma once
// Views of a GPU's memory without a GPU: in a program that includes this header first, the memory of Kokkos' default space is not
// the host's (golden/device_paths.cpp), and DeviceViews lie there. The program is header-only.

#include <Kokkos_Core.hpp>

#include <weft/device/parallel_for.hpp>
#include <weft/tensor/strided_copy.hpp>

template <>
inline constexpr bool weft::detail::on_host<Kokkos::DefaultExecutionSpace> = false;

#include <array>
#include <cstddef>
#include <type_traits>

namespace weft_test {

/// The memory of a device, which the host does not read, and a View of it.
struct DeviceMemory {};
struct HostMemory {
  using memory_space = HostMemory;
};
template <class T, std::size_t dims>
struct DeviceView {
  using memory_space = DeviceMemory;
  using host_mirror_space = HostMemory;
  using value_type = T;
  using non_const_value_type = std::remove_const_t<T>;
  T* first;
  std::array<std::size_t, dims> extents, strides;
  static constexpr std::size_t rank() { return dims; }
  std::size_t extent(std::size_t dim) const { return extents[dim]; }
  std::size_t stride(std::size_t dim) const { return strides[dim]; }
  T* data() const { return first; }
};

}  // namespace weft_test

template <>
inline constexpr bool weft::detail::reads_memory<Kokkos::DefaultExecutionSpace, weft_test::DeviceMemory> = true;
