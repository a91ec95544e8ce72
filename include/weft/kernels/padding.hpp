// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays with copies of their elements, or zeros, around them in some dims, and the gradients. One kernel pads all dims at once,
// for operations and for convolutions.
//
//   kernels::pad_images(device, shape, x, padded);     // [samples * in] images of shape.extents into images of shape.padded(dim)
//   kernels::fold_images(device, shape, dpadded, dx);  // each element of dpadded is added where pad_images read it

#include <algorithm>
#include <cstddef>
#include <utility>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/detail/move_rows.hpp>

namespace weft::kernels {

namespace detail {

/// The index of the element that lies at `place`, counted from the first one of the padding. Not for zeros.
KOKKOS_INLINE_FUNCTION std::size_t padding_source(PaddingMode mode, std::size_t place, std::size_t before, std::size_t extent) {
  if (place >= before && place < before + extent) return place - before;
  if (mode == PaddingMode::periodic) return (place + (before / extent + 1) * extent - before) % extent;
  if (mode == PaddingMode::replicate) return place < before ? 0 : extent - 1;
  return place < before ? before - place : 2 * (extent - 1) - (place - before);
}

}  // namespace detail

/// A dim of `size` elements: `before` ones in front of `extent` elements of x, the rest behind. A source of move_rows.
struct Padded {
  PaddingMode mode = PaddingMode::zeros;
  std::size_t before = 0, extent = 1, size = 1;

  KOKKOS_FORCEINLINE_FUNCTION std::size_t operator()(std::size_t k) const {
    if (mode == PaddingMode::zeros) return k >= before && k < before + extent ? k - before : detail::no_source;
    return detail::padding_source(mode, k, before, extent);
  }
  template <class F>
  void for_each_run(const F& f) const {
    const std::size_t end = before + extent, after = size - end;
    if (mode == PaddingMode::periodic) {
      for (std::size_t to = 0; to < size;) {
        const std::size_t from = (*this)(to), count = extent - from < size - to ? extent - from : size - to;
        f(detail::Run{to, count, from, 1});
        to += count;
      }
      return;
    }
    const bool reflect = mode == PaddingMode::reflect, zeros = mode == PaddingMode::zeros;
    f(detail::Run{0, before, zeros ? detail::no_source : reflect ? before : 0, reflect ? -1 : 0});
    f(detail::Run{before, extent, 0, 1});
    f(detail::Run{end, after, zeros ? detail::no_source : extent - (reflect ? 2 : 1), reflect ? -1 : 0});
  }
};

/// Adjacent dims of an array [outer, dims..., inner], each of which may be padded.
struct PaddedDims {
  static constexpr std::size_t most = 6;
  std::size_t outer = 1, count = 0, inner = 1;
  Padded dims[most];

  const Padded& last() const { return dims[count - 1]; }
  /// Rows of the result along the last dim.
  std::size_t rows() const {
    std::size_t n = outer;
    for (std::size_t dim = 0; dim + 1 < count; ++dim) n *= dims[dim].size;
    return n;
  }
  /// The row of x that a row of the result copies, or no_source.
  KOKKOS_INLINE_FUNCTION std::size_t operator()(std::size_t row) const {
    std::size_t source = 0, stride = 1;
    for (std::size_t dim = count - 1; dim-- > 0;) {
      const std::size_t from = dims[dim](row % dims[dim].size);
      if (from == detail::no_source) return from;
      row /= dims[dim].size;
      source += from * stride;
      stride *= dims[dim].extent;
    }
    return source + row * stride;
  }
};

/// out = x with these dims padded; corners are those of padding one dim after the other.
template <class T, class Exec>
void pad(Device<Exec>& device, const char* kind, const PaddedDims& padded, const T* x, T* out) {
  detail::move_rows(device, kind, padded.rows(), padded, padded.last().extent, padded.last().size, padded.inner, padded.last(), x,
                    out);
}

namespace detail {

/// Calls f(place) for each place, in their order, into which padding copies element k.
template <class F>
KOKKOS_FORCEINLINE_FUNCTION void for_each_padded_place(const Padded& padding, std::size_t k, const F& f) {
  const std::size_t before = padding.before, extent = padding.extent, padded = padding.size;
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

/// fold_dim of lines, whose middle needs no places.
template <class A, class From, class Exec>
void fold_lines(Device<Exec>& device, const Traffic& traffic, std::size_t lines, const Padded& dim, const From* g, A* dx) {
  for_each(
      device, traffic, lines, KOKKOS_LAMBDA(std::size_t line) {
        const From* const from = g + line * dim.size;
        A* const to = dx + line * dim.extent;
        const auto add_padding = [&](std::size_t first, std::size_t last) {
          if (dim.mode == PaddingMode::zeros) return;
          for (std::size_t i = first; i < last; ++i) to[padding_source(dim.mode, i, dim.before, dim.extent)] += A(from[i]);
        };
        for (std::size_t i = 0; i < dim.extent; ++i) to[i] = A(0);
        add_padding(0, dim.before);
        for (std::size_t i = 0; i < dim.extent; ++i) to[i] += A(from[dim.before + i]);
        add_padding(dim.before + dim.extent, dim.size);
      });
}

/// dx[o, k, i] = the sum of the elements of g [outer, size, inner] into which `dim` copied x[o, k, i], in their order.
template <class A, class From, class To, class Exec>
void fold_dim(Device<Exec>& device, const char* kind, std::size_t outer, const Padded& dim, std::size_t inner, const From* g,
              To* dx) {
  const std::size_t extent = dim.extent, size = dim.size;
  const Traffic traffic{kind, outer * inner * (extent * sizeof(To) + size * sizeof(From))};
  if constexpr (std::is_same_v<A, To>)
    if (inner == 1) return fold_lines(device, traffic, outer, dim, g, dx);
  for_each(
      device, traffic, outer * extent, KOKKOS_LAMBDA(std::size_t item) {
        const From* const from = g + item / extent * size * inner;
        To* const to = dx + item * inner;
        const std::size_t k = item % extent;
        const Padded padding = dim;  // nvcc: no first capture within `if constexpr`
        if constexpr (std::is_same_v<A, To>) {
          for (std::size_t i = 0; i < inner; ++i) to[i] = A(0);
          for_each_padded_place(padding, k, [&](std::size_t place) {
            for (std::size_t i = 0; i < inner; ++i) to[i] += A(from[place * inner + i]);
          });
        } else {
          for (std::size_t i = 0; i < inner; ++i) {
            A sum = A(0);
            for_each_padded_place(padding, k, [&](std::size_t place) { sum += A(from[place * inner + i]); });
            to[i] = To(sum);
          }
        }
      });
}

}  // namespace detail

/// The gradient of pad: dx = the sum of the elements of g that are copies of an element of x, one dim after the other from the
/// last on, in accumulate_t; rounds once.
template <class T, class Exec>
void fold(Device<Exec>& device, const char* kind, const PaddedDims& padded, const T* g, T* dx) {
  using A = accumulate_t<T>;
  const auto is_padded = [](const Padded& dim) { return dim.size != dim.extent; };
  std::size_t left = std::size_t(std::count_if(padded.dims, padded.dims + padded.count, is_padded));
  if (left == 0) return pad(device, kind, padded, g, dx);
  std::size_t inner = padded.inner;
  const A* sums = nullptr;
  weft::detail::Buffer held, before;
  for (std::size_t at = padded.count; at-- > 0; inner *= padded.dims[at].extent) {
    const Padded& dim = padded.dims[at];
    if (!is_padded(dim)) continue;
    std::size_t outer = padded.outer;
    for (std::size_t d = 0; d < at; ++d) outer *= padded.dims[d].size;
    const auto folded = [&](auto* to) {
      if (sums == nullptr) detail::fold_dim<A>(device, kind, outer, dim, inner, g, to);
      else detail::fold_dim<A>(device, kind, outer, dim, inner, sums, to);
    };
    if (--left == 0) return folded(dx);
    before = std::exchange(held, device.allocate(outer * dim.extent * inner * sizeof(A)));
    A* const to = static_cast<A*>(held.get());
    folded(to);
    sums = to;
  }
}

/// The images of a convolution, [samples * in, depth, height, width].
inline PaddedDims padded_images(const ConvolutionShape& s) {
  PaddedDims dims;
  dims.outer = s.samples * s.in;
  dims.count = 3;
  for (std::size_t dim = 0; dim < 3; ++dim) dims.dims[dim] = {s.mode, s.before[dim], s.extents[dim], s.padded(dim)};
  return dims;
}
/// padded[image, z, y, x] = the element of that image in which the padded place lies.
template <class T, class Exec>
void pad_images(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* padded) {
  pad(device, "convolution", padded_images(s), x, padded);
}
/// The gradient of pad_images.
template <class T, class Exec>
void fold_images(Device<Exec>& device, const ConvolutionShape& s, const T* dpadded, T* dx) {
  fold(device, "convolution", padded_images(s), dpadded, dx);
}

}  // namespace weft::kernels
