// SPDX-License-Identifier: Apache-2.0
#pragma once
// Largest elements and means of the windows of images [planes, depth, height, width], with one plane per sample and channel.
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

// The elements [begin, end) of a window along one dim of an image, without padding.
struct PoolingWindow {
  std::size_t begin, end;
  KOKKOS_INLINE_FUNCTION PoolingWindow(std::size_t at, const ConvolutionShape& s, std::size_t dim) {
    const std::size_t first = at * s.stride[dim];
    begin = first > s.before[dim] ? first - s.before[dim] : 0;
    end = first + s.kernel[dim] < s.extents[dim] + s.before[dim] ? first + s.kernel[dim] - s.before[dim] : s.extents[dim];
  }
};
// The windows [begin, end) along one dim that cover an element of an image.
struct CoveringWindows {
  std::size_t begin, end;
  KOKKOS_INLINE_FUNCTION CoveringWindows(std::size_t at, const ConvolutionShape& s, std::size_t dim, std::size_t windows) {
    // They start at multiples of the stride in (place - kernel, place].
    const std::size_t place = at + s.before[dim], stride = s.stride[dim];
    begin = place < s.kernel[dim] ? 0 : (place - s.kernel[dim]) / stride + 1;
    end = place / stride + 1 < windows ? place / stride + 1 : windows;
  }
};
inline std::size_t pooling_bytes(const ConvolutionShape& s, std::size_t of_image, std::size_t of_result) {
  return s.samples * s.in * (s.pixels() * of_image + s.out_pixels() * of_result);
}

}  // namespace detail

/// y = the largest element of each window, and its index in its plane; the first of equal ones; NaN counts as the largest. Every
/// window has an element that is not padding.
template <class T, class Exec>
void max_pool(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* y, std::int32_t* places) {
  using A = accumulate_t<T>;
  const std::size_t out_depth = s.out_extent(0), out_height = s.out_extent(1), out_width = s.out_extent(2), pixels = s.pixels();
  detail::for_each(
      device, {"pooling", detail::pooling_bytes(s, sizeof(T), sizeof(T) + sizeof(std::int32_t))},
      s.samples * s.in * out_depth * out_height, KOKKOS_LAMBDA(std::size_t row) {
        const detail::PoolingWindow rows(row % out_height, s, 1), slices(row / out_height % out_depth, s, 0);
        const T* from = x + row / out_height / out_depth * pixels;
        for (std::size_t ox = 0; ox < out_width; ++ox) {
          const detail::PoolingWindow columns(ox, s, 2);
          std::size_t at = (slices.begin * s.extents[1] + rows.begin) * s.extents[2] + columns.begin;
          A best = A(from[at]);
          for (std::size_t iz = slices.begin; iz < slices.end; ++iz)
            for (std::size_t iy = rows.begin; iy < rows.end; ++iy) {
              const std::size_t line = (iz * s.extents[1] + iy) * s.extents[2];
              for (std::size_t ix = columns.begin; ix < columns.end; ++ix) {
                const A value = A(from[line + ix]);
                // A mask instead of a branch, which would be mispredicted half of the time.
                const std::size_t larger = std::size_t((value > best) | ((value != value) & (best == best)));
                at ^= (at ^ (line + ix)) & (std::size_t(0) - larger);
                best = A(from[at]);
              }
            }
          y[row * out_width + ox] = T(best);
          places[row * out_width + ox] = std::int32_t(at);
        }
      });
}
/// A part of an image: the elements from `first` on.
struct ImageFrame {
  std::size_t first[ConvolutionShape::most_dims] = {}, extents[ConvolutionShape::most_dims] = {1, 1, 1};
  bool operator==(const ImageFrame&) const = default;
};
/// Indices in the part `from` of an image as those in the part `to`; -1 for elements that are not in it.
template <class Exec>
void move_places(Device<Exec>& device, std::size_t count, const std::int32_t* places, const ImageFrame& from,
                 const ImageFrame& to, std::int32_t* moved) {
  detail::for_each(
      device, {"pooling", 2 * count * sizeof(std::int32_t)}, count, KOKKOS_LAMBDA(std::size_t i) {
        // In 32 bits, in which divisions are faster. An element before the first one wraps to a large number.
        std::uint32_t rest = std::uint32_t(places[i]), there = 0, stride = 1;
        bool inside = true;
        for (std::size_t d = ConvolutionShape::most_dims; d-- > 0;) {
          const std::uint32_t extent = std::uint32_t(from.extents[d]), within = std::uint32_t(to.extents[d]);
          const std::uint32_t outer = d == 0 ? 0 : extent == 1 ? rest : rest / extent;
          const std::uint32_t at = rest - outer * extent + std::uint32_t(from.first[d]) - std::uint32_t(to.first[d]);
          inside = inside && at < within;
          rest = outer, there += at * stride, stride *= within;
        }
        moved[i] = inside ? std::int32_t(there) : -1;
      });
}
/// dx = dy at the positions of max_pool's elements, added where windows overlap, in the order of the windows. A place of -1 is
/// not in dx.
template <class T, class Exec>
void max_pool_backward(Device<Exec>& device, const ConvolutionShape& s, const T* dy, const std::int32_t* places, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t windows = s.out_pixels(), pixels = s.pixels();
  detail::for_each(
      device, {"pooling", detail::pooling_bytes(s, sizeof(T), sizeof(T) + sizeof(std::int32_t))}, s.samples * s.in,
      KOKKOS_LAMBDA(std::size_t plane) {
        T* to = dx + plane * pixels;
        for (std::size_t i = 0; i < pixels; ++i) to[i] = T(A(0));
        for (std::size_t i = 0; i < windows; ++i) {
          const std::int32_t at = places[plane * windows + i];
          if (at >= 0) to[at] = T(A(to[at]) + A(dy[plane * windows + i]));
        }
      });
}

/// y = the sum of each window divided by the kernel's number of elements; padding counts as zeros.
template <class T, class Exec>
void average_pool(Device<Exec>& device, const ConvolutionShape& s, const T* x, T* y) {
  using A = accumulate_t<T>;
  const std::size_t out_depth = s.out_extent(0), out_height = s.out_extent(1), out_width = s.out_extent(2), pixels = s.pixels();
  const A factor = A(1) / A(s.kernel_pixels());
  detail::for_each(
      device, {"pooling", detail::pooling_bytes(s, sizeof(T), sizeof(T))}, s.samples * s.in * out_depth * out_height,
      KOKKOS_LAMBDA(std::size_t row) {
        const detail::PoolingWindow rows(row % out_height, s, 1), slices(row / out_height % out_depth, s, 0);
        const T* from = x + row / out_height / out_depth * pixels;
        for (std::size_t ox = 0; ox < out_width; ++ox) {
          const detail::PoolingWindow columns(ox, s, 2);
          A sum = 0;
          for (std::size_t iz = slices.begin; iz < slices.end; ++iz)
            for (std::size_t iy = rows.begin; iy < rows.end; ++iy)
              for (std::size_t ix = columns.begin; ix < columns.end; ++ix)
                sum += A(from[(iz * s.extents[1] + iy) * s.extents[2] + ix]);
          y[row * out_width + ox] = T(factor * sum);
        }
      });
}
/// dx = dy divided by the kernel's number of elements, added where windows overlap.
template <class T, class Exec>
void average_pool_backward(Device<Exec>& device, const ConvolutionShape& s, const T* dy, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t out_depth = s.out_extent(0), out_height = s.out_extent(1), out_width = s.out_extent(2);
  const A factor = A(1) / A(s.kernel_pixels());
  detail::for_each(
      device, {"pooling", detail::pooling_bytes(s, sizeof(T), sizeof(T))}, s.samples * s.in * s.extents[0] * s.extents[1],
      KOKKOS_LAMBDA(std::size_t row) {
        const detail::CoveringWindows rows(row % s.extents[1], s, 1, out_height),
            slices(row / s.extents[1] % s.extents[0], s, 0, out_depth);
        const T* from = dy + row / s.extents[1] / s.extents[0] * out_depth * out_height * out_width;
        for (std::size_t x = 0; x < s.extents[2]; ++x) {
          const detail::CoveringWindows columns(x, s, 2, out_width);
          A sum = 0;
          for (std::size_t oz = slices.begin; oz < slices.end; ++oz)
            for (std::size_t oy = rows.begin; oy < rows.end; ++oy)
              for (std::size_t ox = columns.begin; ox < columns.end; ++ox)
                sum += A(from[(oz * out_height + oy) * out_width + ox]);
          dx[row * s.extents[2] + x] = T(factor * sum);
        }
      });
}

}  // namespace weft::kernels
