// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolution as a product: each sample's patches are columns of a matrix (im2col), which is multiplied by the weights. For types
// and devices without oneDNN. Each sample is computed separately, so its bits do not depend on the batch.
//
// Chellapilla, Puri and Simard 2006.

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/loops.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>

namespace weft::kernels::detail {

/// columns[(channel, ky, kx), (oy, ox)] = the pixel of the image x [in, height, width] under the kernel's (ky, kx) at that
/// output.
template <class T, class Exec>
void image_to_columns(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* columns) {
  const std::size_t rows = s.in * s.kernel_pixels(), out_height = s.out_height(), out_width = s.out_width(), stride = s.stride,
                    padding = s.padding, width = s.width, height = s.height, kernel_width = s.kernel_width,
                    kernel_height = s.kernel_height;
  for_each(
      device, {"convolution", (s.in * s.pixels() + rows * s.out_pixels()) * sizeof(T)}, rows * out_height,
      KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t row = item / out_height, oy = item % out_height, kx = row % kernel_width, above = row / kernel_width,
                          ky = above % kernel_height, channel = above / kernel_height, place = oy * stride + ky;
        T* to = columns + item * out_width;
        const T zero = T(accumulate_t<T>(0));
        if (place < padding || place >= height + padding) {
          for (std::size_t ox = 0; ox < out_width; ++ox) to[ox] = zero;
          return;
        }
        const T* from = x + (channel * height + place - padding) * width;
        const std::size_t first = kx >= padding ? 0 : (padding - kx + stride - 1) / stride,
                          end = width + padding <= kx ? 0 : (width + padding - kx - 1) / stride + 1,
                          last = end < out_width ? end : out_width;
        for (std::size_t ox = 0; ox < first && ox < out_width; ++ox) to[ox] = zero;
        if (stride == 1)
          for (std::size_t ox = first; ox < last; ++ox) to[ox] = from[ox + kx - padding];
        else
          for (std::size_t ox = first; ox < last; ++ox) to[ox] = from[ox * stride + kx - padding];
        for (std::size_t ox = last > first ? last : first; ox < out_width; ++ox) to[ox] = zero;
      });
}

/// x[channel, iy, ix] = the sum of the columns' elements that image_to_columns copied from there.
template <class A, class T, class Exec>
void columns_to_image(Device<Exec>& device, const ConvolutionShape& s, const A* columns, A* sums, T* x) {
  const std::size_t out_height = s.out_height(), out_width = s.out_width(), stride = s.stride, padding = s.padding,
                    width = s.width, height = s.height, kernel_width = s.kernel_width, kernel_height = s.kernel_height;
  for_each(
      device, {"convolution", s.in * (s.kernel_pixels() * s.out_pixels() * sizeof(A) + s.pixels() * sizeof(T))}, s.in,
      KOKKOS_LAMBDA(std::size_t channel) {
        A* to = sums + channel * height * width;
        for (std::size_t i = 0; i < height * width; ++i) to[i] = A(0);
        for (std::size_t ky = 0; ky < kernel_height; ++ky)
          for (std::size_t kx = 0; kx < kernel_width; ++kx) {
            const A* from = columns + ((channel * kernel_height + ky) * kernel_width + kx) * out_height * out_width;
            const std::size_t first = kx >= padding ? 0 : (padding - kx + stride - 1) / stride,
                              end = width + padding <= kx ? 0 : (width + padding - kx - 1) / stride + 1,
                              last = end < out_width ? end : out_width;
            for (std::size_t oy = 0; oy < out_height; ++oy) {
              const std::size_t place = oy * stride + ky;
              if (place < padding || place >= height + padding) continue;
              A* row = to + (place - padding) * width;
              const A* part = from + oy * out_width;
              if (stride == 1)
                for (std::size_t ox = first; ox < last; ++ox) row[ox + kx - padding] += part[ox];
              else
                for (std::size_t ox = first; ox < last; ++ox) row[ox * stride + kx - padding] += part[ox];
            }
          }
        if (static_cast<const void*>(to) != static_cast<const void*>(x + channel * height * width))
          for (std::size_t i = 0; i < height * width; ++i) x[channel * height * width + i] = T(to[i]);
      });
}

/// True if the image equals its columns: a kernel of one pixel with stride 1 and without padding.
inline bool is_product(const ConvolutionShape& s) { return s.kernel_pixels() == 1 && s.stride == 1 && s.padding == 0; }

template <class T, class Exec>
void convolution_forward_columns(Device<Exec>& device, const ConvolutionShape& s, const T* x, const T* w, T* y) {
  const std::size_t patch = s.in / s.groups * s.kernel_pixels(), outs = s.out / s.groups, pixels = s.out_pixels();
  const bool product = is_product(s);
  const weft::detail::Buffer buffer = device.allocate(product ? 0 : s.in * s.kernel_pixels() * pixels * sizeof(T));
  for (std::size_t n = 0; n < s.samples; ++n) {
    const T* columns = x + n * s.in * s.pixels();
    if (!product) {
      image_to_columns(device, s, columns, static_cast<T*>(buffer.get()));
      columns = static_cast<const T*>(buffer.get());
    }
    for (std::size_t g = 0; g < s.groups; ++g)
      matmul<T, T>(device, Transpose::no, Transpose::no, outs, pixels, patch, w + g * outs * patch, patch,
                   columns + g * patch * pixels, pixels, y + (n * s.out + g * outs) * pixels, pixels);
  }
}

template <class T, class Exec>
void convolution_backward_input_columns(Device<Exec>& device, const ConvolutionShape& s, const T* dy, const T* w, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t patch = s.in / s.groups * s.kernel_pixels(), outs = s.out / s.groups, pixels = s.out_pixels(),
                    image = s.in * s.pixels();
  const std::size_t columns_size = s.in * s.kernel_pixels() * pixels;
  const weft::detail::Buffer buffer = device.allocate((columns_size + (std::is_same_v<T, A> ? 0 : image)) * sizeof(A));
  A* const columns = static_cast<A*>(buffer.get());
  for (std::size_t n = 0; n < s.samples; ++n) {
    for (std::size_t g = 0; g < s.groups; ++g)
      matmul<T, A>(device, Transpose::yes, Transpose::no, patch, pixels, outs, w + g * outs * patch, patch,
                   dy + (n * s.out + g * outs) * pixels, pixels, columns + g * patch * pixels, pixels);
    T* const to = dx + n * image;
    if constexpr (std::is_same_v<T, A>) columns_to_image(device, s, columns, to, to);
    else columns_to_image(device, s, columns, columns + columns_size, to);
  }
}

/// dw [out, in / groups, kernel_height, kernel_width] in accumulate_t.
template <class T, class Exec>
void convolution_backward_weight_columns(Device<Exec>& device, const ConvolutionShape& s, const T* x, const T* dy,
                                         accumulate_t<T>* dw) {
  using A = accumulate_t<T>;
  const std::size_t patch = s.in / s.groups * s.kernel_pixels(), outs = s.out / s.groups, pixels = s.out_pixels();
  const bool product = is_product(s);
  const weft::detail::Buffer buffer = device.allocate(product ? 0 : s.in * s.kernel_pixels() * pixels * sizeof(T));
  if (s.samples == 0) fill(device, s.out * patch, dw, A(0));
  for (std::size_t n = 0; n < s.samples; ++n) {
    const T* columns = x + n * s.in * s.pixels();
    if (!product) {
      image_to_columns(device, s, columns, static_cast<T*>(buffer.get()));
      columns = static_cast<const T*>(buffer.get());
    }
    for (std::size_t g = 0; g < s.groups; ++g)
      matmul<T, A>(device, Transpose::no, Transpose::yes, outs, patch, pixels, dy + (n * s.out + g * outs) * pixels, pixels,
                   columns + g * patch * pixels, pixels, dw + g * outs * patch, patch, n != 0);
  }
}

}  // namespace weft::kernels::detail
