// SPDX-License-Identifier: Apache-2.0
#pragma once
// Images [planes, depth, height, width] enlarged by whole factors along each dim, by the nearest element or linearly, and the
// gradient.
//
//   kernels::upsample(device, {.planes = n, .extents = {1, 8, 8}, .factor = {1, 2, 2}}, x, y);

#include <cstddef>

#include <Kokkos_Core.hpp>

#include <weft/core/scalar.hpp>
#include <weft/kernels/detail/loops.hpp>

namespace weft::kernels {

enum class UpsampleMode {
  nearest,
  linear,  ///< between centres of elements, as torch's align_corners=False; at the border the nearest element
};

/// Images of one or two dims have a depth, and a height, of one element.
struct UpsampleShape {
  std::size_t planes = 0;
  std::size_t extents[3] = {1, 1, 1}, factor[3] = {1, 1, 1};
  UpsampleMode mode = UpsampleMode::nearest;
  /// Linear enlargement of a part: the elements from `first` on, of images with `whole` elements, give `outs` results from
  /// `out_first` on. 0: all.
  std::size_t first[3] = {}, whole[3] = {}, out_first[3] = {}, outs[3] = {};
  KOKKOS_INLINE_FUNCTION constexpr std::size_t all(std::size_t dim) const { return whole[dim] == 0 ? extents[dim] : whole[dim]; }
  constexpr std::size_t out_extent(std::size_t dim) const { return outs[dim] == 0 ? extents[dim] * factor[dim] : outs[dim]; }
  constexpr std::size_t pixels() const { return extents[0] * extents[1] * extents[2]; }
  constexpr std::size_t out_pixels() const { return out_extent(0) * out_extent(1) * out_extent(2); }
};

namespace detail {

/// The two elements of the whole image along one dim between which a result lies, and the weight of the second.
struct UpsampleSource {
  std::size_t first, second;
  double weight;
  KOKKOS_INLINE_FUNCTION UpsampleSource(const UpsampleShape& s, std::size_t dim, std::size_t result)
      : UpsampleSource(s, dim, result + s.out_first[dim], s.all(dim)) {}
  /// Indices of the elements among those of s, or of the nearest ones there.
  KOKKOS_INLINE_FUNCTION UpsampleSource here(const UpsampleShape& s, std::size_t dim) const {
    UpsampleSource source = *this;
    source.first = nearest(s, dim, first), source.second = nearest(s, dim, second);
    return source;
  }

 private:
  KOKKOS_INLINE_FUNCTION static std::size_t nearest(const UpsampleShape& s, std::size_t dim, std::size_t element) {
    const std::size_t at = element < s.first[dim] ? 0 : element - s.first[dim];
    return at < s.extents[dim] ? at : s.extents[dim] - 1;
  }
  KOKKOS_INLINE_FUNCTION UpsampleSource(const UpsampleShape& s, std::size_t dim, std::size_t at, std::size_t all)
      : first(at / s.factor[dim]), second(first), weight(0) {
    if (s.mode == UpsampleMode::nearest) return;
    // The centre of the result, in elements of the image from the centre of the first one: (2 at + 1 - factor) / (2 factor).
    const std::size_t twice = 2 * s.factor[dim], place = 2 * at + 1;
    if (place < s.factor[dim]) return;
    first = (place - s.factor[dim]) / twice;
    weight = double((place - s.factor[dim]) % twice) / double(twice);
    second = first + 1 < all ? first + 1 : first;
  }
};

}  // namespace detail

/// y [planes, factor * extents...] from x.
template <class T, class Exec>
void upsample(Device<Exec>& device, const UpsampleShape& s, const T* x, T* y) {
  using A = accumulate_t<T>;
  const std::size_t depth = s.out_extent(0), height = s.out_extent(1), width = s.out_extent(2), pixels = s.pixels();
  detail::for_each(
      device, {"upsample", s.planes * (pixels + s.out_pixels()) * sizeof(T)}, s.planes * depth * height,
      KOKKOS_LAMBDA(std::size_t row) {
        const auto source = [&](std::size_t d, std::size_t result) { return detail::UpsampleSource(s, d, result).here(s, d); };
        const detail::UpsampleSource iy = source(1, row % height), iz = source(0, row / height % depth);
        const T* image = x + row / height / depth * pixels;
        const auto line = [&](std::size_t z, std::size_t line_y) { return image + (z * s.extents[1] + line_y) * s.extents[2]; };
        const T *a = line(iz.first, iy.first), *b = line(iz.first, iy.second), *c = line(iz.second, iy.first),
                *d = line(iz.second, iy.second);
        const A wy = A(iy.weight), wz = A(iz.weight);
        for (std::size_t i = 0; i < width; ++i) {
          const detail::UpsampleSource ix = source(2, i);
          const A wx = A(ix.weight);
          const auto along = [&](const T* from) { return (A(1) - wx) * A(from[ix.first]) + wx * A(from[ix.second]); };
          if (s.mode == UpsampleMode::nearest) y[row * width + i] = a[ix.first];
          else
            y[row * width + i] =
                T((A(1) - wz) * ((A(1) - wy) * along(a) + wy * along(b)) + wz * ((A(1) - wy) * along(c) + wy * along(d)));
        }
      });
}

/// dx = the sum of the results' gradients, each with the weight of its element; in accumulate_t, in the order of the results.
template <class T, class Exec>
void upsample_backward(Device<Exec>& device, const UpsampleShape& s, const T* dy, T* dx) {
  using A = accumulate_t<T>;
  const std::size_t depth = s.out_extent(0), height = s.out_extent(1), width = s.out_extent(2), pixels = s.pixels();
  if (s.mode == UpsampleMode::nearest) {
    detail::for_each(
        device, {"upsample", s.planes * (pixels + s.out_pixels()) * sizeof(T)}, s.planes * s.extents[0] * s.extents[1],
        KOKKOS_LAMBDA(std::size_t row) {
          const T* const block = dy + (row / s.extents[1] * s.factor[0] * height + row % s.extents[1] * s.factor[1]) * width;
          for (std::size_t i = 0; i < s.extents[2]; ++i) {
            A sum = 0;
            for (std::size_t z = 0; z < s.factor[0]; ++z)
              for (std::size_t y = 0; y < s.factor[1]; ++y) {
                const T* const from = block + (z * height + y) * width + i * s.factor[2];
                for (std::size_t x = 0; x < s.factor[2]; ++x) sum += A(from[x]);
              }
            dx[row * s.extents[2] + i] = T(sum);
          }
        });
    return;
  }
  detail::for_each(
      device, {"upsample", s.planes * (pixels + s.out_pixels()) * sizeof(T)}, s.planes * pixels, KOKKOS_LAMBDA(std::size_t item) {
        const std::size_t at[] = {item / s.extents[2] / s.extents[1] % s.extents[0] + s.first[0],
                                  item / s.extents[2] % s.extents[1] + s.first[1], item % s.extents[2] + s.first[2]},
                          outs[] = {depth, height, width};
        // An element takes part in the results of its neighbours, too.
        std::size_t begin[3], end[3];
        for (std::size_t d = 0; d < 3; ++d) {
          const std::size_t from = (at[d] == 0 ? 0 : at[d] - 1) * s.factor[d], to = (at[d] + 2) * s.factor[d];
          begin[d] = from < s.out_first[d] ? 0 : from - s.out_first[d];
          end[d] = to < s.out_first[d] ? 0 : to - s.out_first[d];
          end[d] = end[d] < outs[d] ? end[d] : outs[d];
        }
        const auto share = [&](std::size_t d, std::size_t result) {
          const detail::UpsampleSource source(s, d, result);
          return (source.first == at[d] ? A(1 - source.weight) : A(0)) + (source.second == at[d] ? A(source.weight) : A(0));
        };
        const T* from = dy + item / pixels * depth * height * width;
        A sum = 0;
        for (std::size_t z = begin[0]; z < end[0]; ++z)
          for (std::size_t y = begin[1]; y < end[1]; ++y) {
            const A of_line = share(0, z) * share(1, y);
            if (of_line == A(0)) continue;
            for (std::size_t i = begin[2]; i < end[2]; ++i) sum += of_line * share(2, i) * A(from[(z * height + y) * width + i]);
          }
        dx[item] = T(sum);
      });
}

}  // namespace weft::kernels
