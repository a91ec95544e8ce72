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

/// The index along the fastest dim, which is removed from `rest`; without a division for a dim of one element.
KOKKOS_INLINE_FUNCTION std::size_t take_index(std::size_t& rest, std::size_t extent) {
  if (extent == 1) return 0;
  const std::size_t index = rest % extent;
  rest /= extent;
  return index;
}

/// The outputs along one dim whose element of the kernel lies inside the image: [first, last), the same for all lines.
struct InsideImage {
  std::size_t first, last;
  KOKKOS_INLINE_FUNCTION InsideImage(std::size_t offset, std::size_t before, std::size_t extent, std::size_t stride,
                                     std::size_t outputs) {
    const std::size_t end = extent + before <= offset ? 0 : (extent + before - offset - 1) / stride + 1;
    last = end < outputs ? end : outputs;
    first = offset >= before ? 0 : (before - offset + stride - 1) / stride;
    if (first > last) first = last;
  }
};

/// columns[(channel, kz, ky, kx), (oz, oy, ox)] = the element of the image x [in, depth, height, width] under the kernel's (kz,
/// ky, kx) at that output.
template <class T, class Exec>
void image_to_columns(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* columns) {
  const std::size_t rows = s.in * s.kernel_pixels(), out_depth = s.out_extent(0), out_height = s.out_extent(1),
                    out_width = s.out_extent(2);
  for_each(
      device, {"convolution", (s.in * s.pixels() + rows * s.out_pixels()) * sizeof(T)}, rows * out_depth * out_height,
      KOKKOS_LAMBDA(std::size_t item) {
        std::size_t rest = item;
        const std::size_t oy = take_index(rest, out_height), oz = take_index(rest, out_depth), kx = take_index(rest, s.kernel[2]),
                          ky = take_index(rest, s.kernel[1]), kz = take_index(rest, s.kernel[0]), channel = rest,
                          y = oy * s.stride[1] + ky * s.dilation[1], z = oz * s.stride[0] + kz * s.dilation[0];
        T* to = columns + item * out_width;
        const T zero = T(accumulate_t<T>(0));
        if (y < s.before[1] || y >= s.extents[1] + s.before[1] || z < s.before[0] || z >= s.extents[0] + s.before[0]) {
          for (std::size_t ox = 0; ox < out_width; ++ox) to[ox] = zero;
          return;
        }
        const T* from = x + ((channel * s.extents[0] + z - s.before[0]) * s.extents[1] + y - s.before[1]) * s.extents[2];
        const std::size_t offset = kx * s.dilation[2], stride = s.stride[2], before = s.before[2];
        const InsideImage inside(offset, before, s.extents[2], stride, out_width);
        for (std::size_t ox = 0; ox < inside.first; ++ox) to[ox] = zero;
        if (stride == 1)
          for (std::size_t ox = inside.first; ox < inside.last; ++ox) to[ox] = from[ox + offset - before];
        else
          for (std::size_t ox = inside.first; ox < inside.last; ++ox) to[ox] = from[ox * stride + offset - before];
        for (std::size_t ox = inside.last; ox < out_width; ++ox) to[ox] = zero;
      });
}

/// x[channel, iz, iy, ix] = the sum of the columns' elements that image_to_columns copied from there.
template <class A, class T, class Exec>
void columns_to_image(Device<Exec>& device, const ConvolutionShape& s, const A* columns, A* sums, T* x) {
  const std::size_t out_depth = s.out_extent(0), out_height = s.out_extent(1), out_width = s.out_extent(2), pixels = s.pixels(),
                    kernel_pixels = s.kernel_pixels();
  for_each(
      device, {"convolution", s.in * (kernel_pixels * s.out_pixels() * sizeof(A) + pixels * sizeof(T))}, s.in,
      KOKKOS_LAMBDA(std::size_t channel) {
        A* to = sums + channel * pixels;
        for (std::size_t i = 0; i < pixels; ++i) to[i] = A(0);
        const A* part = columns + channel * kernel_pixels * out_depth * out_height * out_width;
        for (std::size_t k = 0; k < kernel_pixels; ++k) {
          const std::size_t kx = k % s.kernel[2], ky = k / s.kernel[2] % s.kernel[1], kz = k / s.kernel[2] / s.kernel[1],
                            offset = kx * s.dilation[2], stride = s.stride[2], before = s.before[2];
          const InsideImage inside(offset, before, s.extents[2], stride, out_width);
          for (std::size_t oz = 0; oz < out_depth; ++oz)
            for (std::size_t oy = 0; oy < out_height; ++oy, part += out_width) {
              const std::size_t y = oy * s.stride[1] + ky * s.dilation[1], z = oz * s.stride[0] + kz * s.dilation[0];
              if (y < s.before[1] || y >= s.extents[1] + s.before[1] || z < s.before[0] || z >= s.extents[0] + s.before[0])
                continue;
              A* row = to + ((z - s.before[0]) * s.extents[1] + y - s.before[1]) * s.extents[2];
              if (stride == 1)
                for (std::size_t ox = inside.first; ox < inside.last; ++ox) row[ox + offset - before] += part[ox];
              else
                for (std::size_t ox = inside.first; ox < inside.last; ++ox) row[ox * stride + offset - before] += part[ox];
            }
        }
        if (static_cast<const void*>(to) != static_cast<const void*>(x + channel * pixels))
          for (std::size_t i = 0; i < pixels; ++i) x[channel * pixels + i] = T(to[i]);
      });
}

/// True if the image equals its columns: a kernel of one element with stride 1 and without padding.
inline bool is_product(const ConvolutionShape& s) {
  return s.kernel_pixels() == 1 && s.stride[0] * s.stride[1] * s.stride[2] == 1 && !s.has_padding();
}

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

/// dw [out, in / groups, kernel...] in accumulate_t.
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
