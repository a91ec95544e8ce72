// SPDX-License-Identifier: Apache-2.0
#pragma once
// The extents of a two-dimensional convolution, or of a pooling, of images [samples, channels, height, width].
//
//   const ConvolutionShape s{.samples = 8, .in = 3, .height = 32, .width = 32, .out = 16, .kernel_height = 3, .kernel_width = 3,
//                            .padding = 1};

#include <cstddef>

#include <weft/core/standard.hpp>

namespace weft::kernels {

struct ConvolutionShape {
  std::size_t samples = 0;
  std::size_t in = 0;                 ///< channels of the input
  std::size_t height = 0, width = 0;  ///< of the input
  std::size_t out = 0;                ///< channels of the output
  std::size_t kernel_height = 1, kernel_width = 1;
  std::size_t stride = 1, padding = 0, groups = 1;

  std::size_t out_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t out_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  /// Elements of one channel of an output image.
  std::size_t out_pixels() const { return out_height() * out_width(); }
  std::size_t pixels() const { return height * width; }
  std::size_t kernel_pixels() const { return kernel_height * kernel_width; }
  bool operator==(const ConvolutionShape&) const = default;
};

}  // namespace weft::kernels
