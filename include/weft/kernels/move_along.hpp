// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of an array that move along one dim: in reverse order, or shifted in a circle.
//
//   kernels::move_along(device, {outer, extent, inner}, kernels::Flipped{extent}, x, y);

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/move_rows.hpp>

namespace weft::kernels {

// Sources of move_rows.

/// The last element first.
struct Flipped {
  std::size_t extent;
  KOKKOS_FORCEINLINE_FUNCTION std::size_t operator()(std::size_t k) const { return extent - 1 - k; }
  template <class F>
  void for_each_run(const F& f) const {
    f(detail::Run{0, extent, extent - 1, -1});
  }
};
/// Element k of x at k + shift, the last ones at the beginning; shift <= extent.
struct Rolled {
  std::size_t extent, shift;
  KOKKOS_FORCEINLINE_FUNCTION std::size_t operator()(std::size_t k) const { return k < shift ? k + (extent - shift) : k - shift; }
  template <class F>
  void for_each_run(const F& f) const {
    f(detail::Run{0, shift, extent - shift, 1});
    f(detail::Run{shift, extent - shift, 0, 1});
  }
};

namespace detail {
struct SameRow {
  KOKKOS_FORCEINLINE_FUNCTION std::size_t operator()(std::size_t row) const { return row; }
};
}  // namespace detail

/// out[o, k, i] = x[o, source(k), i].
template <class T, class Exec, class Source>
void move_along(Device<Exec>& device, const Along& along, const Source& source, const T* x, T* out) {
  detail::move_rows(device, "copy", along.outer, detail::SameRow(), along.extent, along.extent, along.inner, source, x, out);
}

}  // namespace weft::kernels
