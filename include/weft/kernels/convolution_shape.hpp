// SPDX-License-Identifier: Apache-2.0
#pragma once
// The extents of a convolution, or of a pooling, of images [samples, channels, depth, height, width]. Images of one or two dims
// have a depth, and a height, of one element.
//
//   const ConvolutionShape s{.samples = 8, .in = 3, .out = 16, .extents = {1, 32, 32}, .kernel = {1, 3, 3}, .before = {0, 1, 1},
//                            .after = {0, 1, 1}};

#include <cstddef>

#include <weft/core/standard.hpp>

namespace weft::kernels {

/// The elements around an image.
enum class PaddingMode {
  zeros,
  periodic,   ///< the image repeated
  reflect,    ///< mirrored at the first and the last element, which are not repeated; the padding is less than the extent
  replicate,  ///< the nearest element
};

struct ConvolutionShape {
  static constexpr std::size_t most_dims = 3;

  std::size_t samples = 0;
  std::size_t in = 0;   ///< channels of the input
  std::size_t out = 0;  ///< channels of the output
  std::size_t groups = 1;
  std::size_t dims = 2;                        ///< of an image: the last ones of the three below
  std::size_t extents[most_dims] = {1, 1, 1};  ///< of an input image
  std::size_t kernel[most_dims] = {1, 1, 1};
  std::size_t stride[most_dims] = {1, 1, 1};                  ///< between outputs
  std::size_t dilation[most_dims] = {1, 1, 1};                ///< between the kernel's elements
  std::size_t before[most_dims] = {}, after[most_dims] = {};  ///< the padding on both sides
  PaddingMode mode = PaddingMode::zeros;

  /// The elements from the kernel's first to its last.
  constexpr std::size_t reach(std::size_t dim) const { return (kernel[dim] - 1) * dilation[dim] + 1; }
  constexpr std::size_t padded(std::size_t dim) const { return before[dim] + extents[dim] + after[dim]; }
  constexpr std::size_t out_extent(std::size_t dim) const { return (padded(dim) - reach(dim)) / stride[dim] + 1; }
  /// Elements of one channel of an output image.
  constexpr std::size_t out_pixels() const { return out_extent(0) * out_extent(1) * out_extent(2); }
  constexpr std::size_t pixels() const { return extents[0] * extents[1] * extents[2]; }
  constexpr std::size_t kernel_pixels() const { return kernel[0] * kernel[1] * kernel[2]; }
  constexpr std::size_t padded_pixels() const { return padded(0) * padded(1) * padded(2); }
  constexpr bool has_padding() const { return padded(0) != extents[0] || padded(1) != extents[1] || padded(2) != extents[2]; }
  bool operator==(const ConvolutionShape&) const = default;
};

}  // namespace weft::kernels
