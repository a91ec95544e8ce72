// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of an array that move along one dim: padded at both ends, in reverse order, or shifted in a circle. Each element of
// the result is a copy of one element, or 0, so that one loop serves all of them.
//
//   kernels::move_along(device, {outer, extent, inner}, extent, kernels::Flipped{extent}, x, y);

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/padding.hpp>

namespace weft::kernels {

// The index in x of element k of the result. An index that is not below the extent stands for 0.

/// `before` elements in front of those of x.
struct Padded {
  PaddingMode mode;
  std::size_t before, extent;
  KOKKOS_FORCEINLINE_FUNCTION std::size_t operator()(std::size_t k) const {
    if (mode == PaddingMode::zeros) return k >= before && k < before + extent ? k - before : extent;
    return detail::padding_source(mode, k, before, extent);
  }
};
/// The last element first.
struct Flipped {
  std::size_t extent;
  KOKKOS_FORCEINLINE_FUNCTION std::size_t operator()(std::size_t k) const { return extent - 1 - k; }
};
/// Element k of x at k + shift, the last ones at the beginning; shift <= extent.
struct Rolled {
  std::size_t extent, shift;
  KOKKOS_FORCEINLINE_FUNCTION std::size_t operator()(std::size_t k) const { return k < shift ? k + (extent - shift) : k - shift; }
};

/// out[o, k, i] = x[o, source(k), i] for each k below `extent`; `from` has the extents of x.
template <class T, class Exec, class Source>
void move_along(Device<Exec>& device, const Along& from, std::size_t extent, Source source, const T* x, T* out) {
  const std::size_t before = from.extent, inner = from.inner;
  const detail::Traffic traffic{"copy", (from.size() + from.outer * extent * inner) * sizeof(T)};
  if (inner == 1)
    return detail::for_each(
        device, traffic, from.outer, KOKKOS_LAMBDA(std::size_t row) {
          for (std::size_t k = 0; k < extent; ++k) {
            const std::size_t at = source(k);
            out[row * extent + k] = at < before ? x[row * before + at] : T(accumulate_t<T>(0));
          }
        });
  detail::for_each(
      device, traffic, from.outer * extent, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t at = source(item % extent);
        const T* row = x + (item / extent * before + at) * inner;
        T* to = out + item * inner;
        for (std::size_t i = 0; i < inner; ++i) to[i] = at < before ? row[i] : T(accumulate_t<T>(0));
      });
}

namespace detail {

/// Calls f(place) for each place of `padded` ones, in their order, into which padding copies element k.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION void for_each_padded_place(const Padded& padding, std::size_t k, std::size_t padded, const F& f) {
  const std::size_t before = padding.before, extent = padding.extent;
  if (padding.mode == PaddingMode::periodic) {
    for (std::size_t place = (before + k) % extent; place < padded; place += extent) f(place);
    return;
  }
  if (padding.mode == PaddingMode::reflect && k >= 1 && k <= before) f(before - k);
  if (padding.mode == PaddingMode::replicate && k == 0)
    for (std::size_t place = 0; place < before; ++place) f(place);
  f(before + k);
  if (padding.mode == PaddingMode::reflect && k + 1 < extent && before + 2 * (extent - 1) - k < padded)
    f(before + 2 * (extent - 1) - k);
  if (padding.mode == PaddingMode::replicate && k + 1 == extent)
    for (std::size_t place = before + extent; place < padded; ++place) f(place);
}

}  // namespace detail

/// dx[o, k, i] = the sum of the elements of g [outer, padded, inner] into which `padding` copied x[o, k, i], in their order, in
/// accumulate_t; `to` has the extents of x.
template <class T, class Exec>
void fold_along(Device<Exec>& device, const Along& to, const Padded& padding, std::size_t padded, const T* g, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t extent = to.extent, inner = to.inner;
  detail::for_each(
      device, {"copy", (to.size() + to.outer * padded * inner) * sizeof(T)}, to.outer * extent, KOKKOS_LAMBDA(std::size_t item) {
        const T* from = g + item / extent * padded * inner;
        for (std::size_t i = 0; i < inner; ++i) {
          A sum = A(0);
          detail::for_each_padded_place(padding, item % extent, padded,
                                        [&](std::size_t place) { sum += A(from[place * inner + i]); });
          dx[item * inner + i] = T(sum);
        }
      });
}

}  // namespace weft::kernels
