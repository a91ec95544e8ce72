// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements between host memory and a tensor, wherever the tensor lies. Both wait until the copy is done.

#include <Kokkos_Core.hpp>

#include <span>
#include <vector>

#include <weft/tensor/tensor.hpp>

namespace weft {

template <AnyTensor X>
void copy_from_host(const X& x, std::span<const typename X::value_type> elements) {
  using T = typename X::value_type;
  if (elements.size() != x.size()) throw ShapeError("copy of " + std::to_string(elements.size()) + " elements to a tensor " + x.shape().text());
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  Kokkos::View<const T*, Kokkos::HostSpace, Unmanaged> from(elements.data(), elements.size());
  Kokkos::View<T*, typename X::execution_space::memory_space, Unmanaged> to(x.data(), x.size());
  Kokkos::deep_copy(x.device().exec(), to, from);
  x.device().exec().fence("weft::copy_from_host");
}

template <AnyTensor X>
std::vector<typename X::value_type> copy_to_host(const X& x) {
  using T = typename X::value_type;
  std::vector<T> elements(x.size());
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  Kokkos::View<T*, Kokkos::HostSpace, Unmanaged> to(elements.data(), elements.size());
  Kokkos::View<const T*, typename X::execution_space::memory_space, Unmanaged> from(x.data(), x.size());
  Kokkos::deep_copy(x.device().exec(), to, from);
  x.device().exec().fence("weft::copy_to_host");
  return elements;
}

}  // namespace weft
