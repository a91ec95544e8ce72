// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arrays with copies of their elements, or zeros, around them in some dims, and the gradients. One kernel pads all dims at once,
// for operations and for convolutions.
//
//   kernels::pad_images(device, shape, x, padded);     // [samples * in] images of shape.extents into images of shape.padded(dim)
//   kernels::fold_images(device, shape, dpadded, dx);  // each element of dpadded is added where pad_images read it

#include <cstddef>
#include <type_traits>

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

/// padded[image, z, y, x] = the element of that image in which the padded place lies.
template <class T, class Exec>
void pad_images(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* padded) {
  PaddedDims dims;
  dims.outer = s.samples * s.in;
  dims.count = 3;
  for (std::size_t dim = 0; dim < 3; ++dim) dims.dims[dim] = {s.mode, s.before[dim], s.extents[dim], s.padded(dim)};
  pad(device, "convolution", dims, x, padded);
}

/// dx = the sum of the elements of dpadded that lie in its padded places, in their order. Adds in accumulate_t and rounds once.
template <class T, class Exec>
void fold_images(Device<Exec>& device, const ConvolutionShape& s, const T* dpadded, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t depth = s.padded(0), height = s.padded(1), width = s.padded(2), images = s.samples * s.in,
                    pixels = s.pixels();
  constexpr bool apart = !std::is_same_v<T, A>;
  const weft::detail::Buffer buffer = device.allocate(apart ? images * pixels * sizeof(A) : 0);
  A* sums;
  if constexpr (apart) sums = static_cast<A*>(buffer.get());
  else sums = dx;
  detail::for_each(
      device, {"convolution", images * (pixels + s.padded_pixels()) * sizeof(T)}, images, KOKKOS_LAMBDA(std::size_t image) {
        A* to = sums + image * pixels;
        for (std::size_t i = 0; i < pixels; ++i) to[i] = A(0);
        for (std::size_t row = 0; row < depth * height; ++row) {
          const std::size_t iy = detail::padding_source(s.mode, row % height, s.before[1], s.extents[1]),
                            iz = detail::padding_source(s.mode, row / height, s.before[0], s.extents[0]);
          A* line = to + (iz * s.extents[1] + iy) * s.extents[2];
          const T* from = dpadded + (image * depth * height + row) * width;
          const auto add_padding = [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i)
              line[detail::padding_source(s.mode, i, s.before[2], s.extents[2])] += A(from[i]);
          };
          add_padding(0, s.before[2]);
          for (std::size_t i = 0; i < s.extents[2]; ++i) line[i] += A(from[s.before[2] + i]);
          add_padding(s.before[2] + s.extents[2], width);
        }
        if (apart)
          for (std::size_t i = 0; i < pixels; ++i) dx[image * pixels + i] = T(to[i]);
      });
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

}  // namespace detail

/// dx[o, k, i] = the sum of the elements of g [outer, padded, inner] into which `padding` copied x[o, k, i], in their order, in
/// accumulate_t; `to` has the extents of x.
template <class T, class Exec>
void fold_along(Device<Exec>& device, const Along& to, const Padded& padding, const T* g, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t extent = to.extent, inner = to.inner, padded = padding.size;
  detail::for_each(
      device, {"copy", (to.size() + to.outer * padded * inner) * sizeof(T)}, to.outer * extent, KOKKOS_LAMBDA(std::size_t item) {
        const T* from = g + item / extent * padded * inner;
        for (std::size_t i = 0; i < inner; ++i) {
          A sum = A(0);
          detail::for_each_padded_place(padding, item % extent, [&](std::size_t place) { sum += A(from[place * inner + i]); });
          dx[item * inner + i] = T(sum);
        }
      });
}

}  // namespace weft::kernels
