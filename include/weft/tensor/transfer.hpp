// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies of elements between host memory and a tensor in any memory space. copy_from_host and copy_to_host wait until the copy is
// done.
//
//   copy_from_host(x, std::span<const float>(values));
//   const auto numbers = copy_to_host(x);

#include <Kokkos_Core.hpp>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <weft/device/host_copies.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {
// A copy without Kokkos: its copy of views takes the compiler a quarter of a second per element type.
template <class Exec>
void copy_on_host(const Exec& exec, void* to, const void* from, std::size_t bytes) {
  static const std::string label = "weft: before a copy on the host";  // Kokkos takes a string: no allocation in each copy
  exec.fence(label);
  if (bytes != 0) std::memcpy(to, from, bytes);
}
}  // namespace detail

/// Copies `elements`, row-major, into x and waits. Throws ShapeError unless there are as many as x has on this rank.
template <AnyTensor X>
void copy_from_host(const X& x, std::span<const typename X::value_type> elements) {
  if (elements.size() != x.size())
    throw_error<ShapeError>({"copy of ", elements.size(), " elements to a tensor ", x.shape().text()});
  if (Rehearsal* const notes = x.device().rehearsal(); notes != nullptr) [[unlikely]]
    return notes->copied();
  if constexpr (detail::on_host<typename X::execution_space>) {
    detail::copy_on_host(x.device().exec(), x.data(), elements.data(), elements.size_bytes());
  } else {
    detail::copy_to_device(x.device(), x.data(), elements.data(), elements.size_bytes());
    x.device().exec().fence("weft::copy_from_host");
  }
}

namespace detail {
/// As copy_from_host, but earlier kernels may still run when it returns. Later kernels read the new elements; `elements` may
/// change after the return. For small inputs of every step.
template <AnyTensor X>
void send_from_host(const X& x, std::span<const typename X::value_type> elements) {
  if constexpr (on_host<typename X::execution_space>) return copy_from_host(x, elements);
  else {
    if (elements.size() != x.size())
      throw_error<ShapeError>({"copy of ", elements.size(), " elements to a tensor ", x.shape().text()});
    send_to_device(x.device(), x.data(), elements.data(), elements.size_bytes());
  }
}
}  // namespace detail

/// The elements, in row-major order; zeros in a rehearsal.
template <AnyTensor X>
std::vector<typename X::value_type> copy_to_host(const X& x) {
  using T = typename X::value_type;
  std::vector<T> elements(x.size());
  if (Rehearsal* const notes = x.device().rehearsal(); notes != nullptr) [[unlikely]] {
    notes->copied();  // of zeros: a rehearsal has no values
    return elements;
  }
  if constexpr (detail::on_host<typename X::execution_space>) {
    detail::copy_on_host(x.device().exec(), elements.data(), x.data(), x.size() * sizeof(T));
  } else {
    detail::copy_from_device(x.device(), elements.data(), x.data(), x.size() * sizeof(T));
    x.device().exec().fence("weft::copy_to_host");
  }
  return elements;
}

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void copy_on_host(const Kokkos::DefaultHostExecutionSpace&, void*, const void*, std::size_t);
}  // namespace weft::detail
#endif
