// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/convolution.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/operations/convolution.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE kernels::ConvolutionShape convolution_shape(const char* operation, NamedOperand image,
                                                                         NamedOperand weights, const ConvolutionOptions& options,
                                                                         bool depthwise) {
  const Shape &x = image.shape(), &w = weights.shape();
  const auto call = [&] { return call_text(operation, {image, weights}); };
  if (x.rank() != 4 || w.rank() != 4)
    throw_error<ShapeError>({call(), ": expected [samples, channels, height, width] and [out, in, kernel height, kernel width]"});
  const kernels::ConvolutionShape s{.samples = x[0],
                                    .in = x[1],
                                    .height = x[2],
                                    .width = x[3],
                                    .out = w[0],
                                    .kernel_height = w[2],
                                    .kernel_width = w[3],
                                    .stride = options.stride,
                                    .padding = options.padding,
                                    .groups = depthwise ? x[1] : 1};
  if (w[1] != (depthwise ? 1 : x[1]))
    throw_error<ShapeError>(
        {call(), ": ", x[1], " channels, and the weights take ", w[1], depthwise ? ", where depthwise ones take 1" : ""});
  if (depthwise && w[0] != x[1]) throw_error<ShapeError>({call(), ": ", x[1], " channels, and the weights are of ", w[0]});
  if (s.stride == 0 || w[2] == 0 || w[3] == 0 || x[2] + 2 * s.padding < w[2] || x[3] + 2 * s.padding < w[3])
    throw_error<ShapeError>({call(), ": a kernel of ", w[2], " x ", w[3], " with stride ", s.stride, " and padding ", s.padding,
                             " does not fit into an image of ", x[2], " x ", x[3]});
  return s;
}

}  // namespace weft::detail
