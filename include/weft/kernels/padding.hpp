// SPDX-License-Identifier: Apache-2.0
#pragma once
// Images with copies of their elements around them, for convolutions that are not padded by zeros, and the gradient.
//
//   kernels::pad_images(device, shape, x, padded);     // [samples * in] images of shape.extents into images of shape.padded(dim)
//   kernels::fold_images(device, shape, dpadded, dx);  // each element of dpadded is added where pad_images read it

#include <cstddef>
#include <type_traits>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/loops.hpp>

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

/// padded[image, z, y, x] = the element of that image in which the padded place lies.
template <class T, class Exec>
void pad_images(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* padded) {
  const std::size_t depth = s.padded(0), height = s.padded(1), width = s.padded(2), images = s.samples * s.in;
  detail::for_each(
      device, {"convolution", images * (s.pixels() + s.padded_pixels()) * sizeof(T)}, images * depth * height,
      KOKKOS_LAMBDA(std::size_t row) {
        const std::size_t iy = detail::padding_source(s.mode, row % height, s.before[1], s.extents[1]),
                          iz = detail::padding_source(s.mode, row / height % depth, s.before[0], s.extents[0]);
        const T* from = x + ((row / height / depth * s.extents[0] + iz) * s.extents[1] + iy) * s.extents[2];
        T* to = padded + row * width;
        for (std::size_t i = 0; i < width; ++i) to[i] = from[detail::padding_source(s.mode, i, s.before[2], s.extents[2])];
      });
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
          for (std::size_t i = 0; i < width; ++i)
            line[detail::padding_source(s.mode, i, s.before[2], s.extents[2])] += A(from[i]);
        }
        if (apart)
          for (std::size_t i = 0; i < pixels; ++i) dx[image * pixels + i] = T(to[i]);
      });
}

}  // namespace weft::kernels
