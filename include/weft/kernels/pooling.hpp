// SPDX-License-Identifier: Apache-2.0
#pragma once
// Largest elements and means of the windows of images [planes, height, width], with one plane per sample and channel.
//
//   kernels::max_pool(device, shape, x, y, places);   // shape.in = shape.out = channels

#include <cstddef>
#include <cstdint>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

namespace detail {

// The pixels [begin, end) of a window along one side of an image, without padding.
struct PoolingWindow {
  std::size_t begin, end;
  KOKKOS_INLINE_FUNCTION PoolingWindow(std::size_t at, const ConvolutionShape& s, std::size_t kernel, std::size_t extent) {
    const std::size_t first = at * s.stride;
    begin = first > s.padding ? first - s.padding : 0;
    end = first + kernel < extent + s.padding ? first + kernel - s.padding : extent;
  }
};

}  // namespace detail

/// y = the largest element of each window, and its index in its plane; the first of equal ones; NaN counts as the largest. Every
/// window has an element that is not padding.
template <class T, class Exec>
void max_pool(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* y, std::int32_t* places) {
  using A = accumulate_t<T>;
  const std::size_t out_height = s.out_height(), out_width = s.out_width();
  detail::for_each(
      device, {"pooling", s.samples * s.in * (s.pixels() * sizeof(T) + s.out_pixels() * (sizeof(T) + sizeof(std::int32_t)))},
      s.samples * s.in * out_height, KOKKOS_LAMBDA(std::size_t row) {
        const detail::PoolingWindow rows(row % out_height, s, s.kernel_height, s.height);
        const T* from = x + row / out_height * s.height * s.width;
        for (std::size_t ox = 0; ox < out_width; ++ox) {
          const detail::PoolingWindow columns(ox, s, s.kernel_width, s.width);
          std::size_t at = rows.begin * s.width + columns.begin;
          A best = A(from[at]);
          for (std::size_t iy = rows.begin; iy < rows.end; ++iy)
            for (std::size_t ix = columns.begin; ix < columns.end; ++ix) {
              const A value = A(from[iy * s.width + ix]);
              // A mask instead of a branch, which would be mispredicted half of the time.
              const std::size_t larger = std::size_t((value > best) | ((value != value) & (best == best)));
              at ^= (at ^ (iy * s.width + ix)) & (std::size_t(0) - larger);
              best = A(from[at]);
            }
          y[row * out_width + ox] = T(best);
          places[row * out_width + ox] = std::int32_t(at);
        }
      });
}
/// dx = dy at the positions of max_pool's elements, added where windows overlap, in the order of the windows.
template <class T, class Exec>
void max_pool_backward(Device<Exec>& device, const ConvolutionShape& s, const T* dy, const std::int32_t* places, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t windows = s.out_pixels(), pixels = s.pixels();
  detail::for_each(
      device, {"pooling", s.samples * s.in * (s.pixels() * sizeof(T) + s.out_pixels() * (sizeof(T) + sizeof(std::int32_t)))},
      s.samples * s.in, KOKKOS_LAMBDA(std::size_t plane) {
        T* to = dx + plane * pixels;
        for (std::size_t i = 0; i < pixels; ++i) to[i] = T(A(0));
        for (std::size_t i = 0; i < windows; ++i) {
          const std::size_t at = std::size_t(places[plane * windows + i]);
          to[at] = T(A(to[at]) + A(dy[plane * windows + i]));
        }
      });
}

/// y = the sum of each window divided by the kernel's number of pixels; padding counts as zeros.
template <class T, class Exec>
void average_pool(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* y) {
  using A = accumulate_t<T>;
  const std::size_t out_height = s.out_height(), out_width = s.out_width();
  const A factor = A(1) / A(s.kernel_pixels());
  detail::for_each(
      device, {"pooling", s.samples * s.in * (s.pixels() + s.out_pixels()) * sizeof(T)}, s.samples * s.in * out_height,
      KOKKOS_LAMBDA(std::size_t row) {
        const detail::PoolingWindow rows(row % out_height, s, s.kernel_height, s.height);
        const T* from = x + row / out_height * s.height * s.width;
        for (std::size_t ox = 0; ox < out_width; ++ox) {
          const detail::PoolingWindow columns(ox, s, s.kernel_width, s.width);
          A sum = 0;
          for (std::size_t iy = rows.begin; iy < rows.end; ++iy)
            for (std::size_t ix = columns.begin; ix < columns.end; ++ix) sum += A(from[iy * s.width + ix]);
          y[row * out_width + ox] = T(factor * sum);
        }
      });
}
/// dx = dy divided by the kernel's number of pixels, added where windows overlap.
template <class T, class Exec>
void average_pool_backward(Device<Exec>& device, const ConvolutionShape& s, const T* dy, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t out_height = s.out_height(), out_width = s.out_width();
  const A factor = A(1) / A(s.kernel_pixels());
  detail::for_each(
      device, {"pooling", s.samples * s.in * (s.pixels() + s.out_pixels()) * sizeof(T)}, s.samples * s.in * s.height,
      KOKKOS_LAMBDA(std::size_t row) {
        const std::size_t plane = row / s.height, iy = row % s.height + s.padding;
        // The windows that cover a pixel at i begin at multiples of the stride in (i - kernel, i].
        const std::size_t oy0 = iy < s.kernel_height ? 0 : (iy - s.kernel_height) / s.stride + 1,
                          oy1 = iy / s.stride + 1 < out_height ? iy / s.stride + 1 : out_height;
        const T* from = dy + plane * out_height * out_width;
        for (std::size_t x = 0; x < s.width; ++x) {
          const std::size_t ix = x + s.padding, ox0 = ix < s.kernel_width ? 0 : (ix - s.kernel_width) / s.stride + 1,
                            ox1 = ix / s.stride + 1 < out_width ? ix / s.stride + 1 : out_width;
          A sum = 0;
          for (std::size_t oy = oy0; oy < oy1; ++oy)
            for (std::size_t ox = ox0; ox < ox1; ++ox) sum += A(from[oy * out_width + ox]);
          dx[row * s.width + x] = T(factor * sum);
        }
      });
}

}  // namespace weft::kernels
