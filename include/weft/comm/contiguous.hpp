// SPDX-License-Identifier: Apache-2.0
#pragma once
// The argument types of collectives: anything that gives its elements to std::data and std::size, such as std::span, std::vector,
// an array, a contiguous Kokkos View or a Tensor.

#include <Kokkos_Core.hpp>

#include <concepts>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include <weft/comm/operation.hpp>
#include <weft/core/placed.hpp>

namespace weft {

namespace detail {
template <class X>
using element_t = std::remove_pointer_t<decltype(std::data(std::declval<X&>()))>;

template <class X>
constexpr comm::MemoryKind memory_kind() {
  if constexpr (requires { typename X::memory_space; }) {
    return Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename X::memory_space>::accessible ? comm::MemoryKind::host
                                                                                               : comm::MemoryKind::device;
  } else {
    return comm::MemoryKind::host;
  }
}
}  // namespace detail

/// A sequence of Scalars without gaps; an array of one dim is one (float x[4]). Views with strides are checked when they are
/// used.
template <class X>
concept Contiguous = requires(std::remove_reference_t<X>& x) {
  { std::size(x) } -> std::convertible_to<std::size_t>;
  requires std::is_pointer_v<decltype(std::data(x))>;
  requires detail::Scalar<std::remove_cv_t<std::remove_pointer_t<decltype(std::data(x))>>>;
};

/// A Contiguous with writable elements.
template <class X>
concept MutableContiguous = Contiguous<X> && !std::is_const_v<detail::element_t<std::remove_reference_t<X>>>;

namespace detail {

template <Contiguous X>
using scalar_t = std::remove_cv_t<element_t<std::remove_reference_t<X>>>;

}  // namespace detail

/// Refuses, at compile time, arguments whose type has placements on axes.
template <class... X>
constexpr void require_unplaced() {
  static_assert((!is_placed<std::remove_cvref_t<X>> && ...),
                "weft: a collective on the memory of a tensor with placements: its type would go on saying how the elements lay "
                "before. Move it with to<Placement>(context, x), which picks the collective and has the backward; raw(x) is the "
                "same elements without placements, where you mean these");
}

/// The memory, host or device, in which a buffer of type X lies.
template <Contiguous X>
inline constexpr comm::MemoryKind memory_kind_of = detail::memory_kind<std::remove_cvref_t<X>>();

}  // namespace weft
