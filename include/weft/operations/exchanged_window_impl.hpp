// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check of windows that bring their halo themselves. Definitions for operations/exchanged_window.hpp.

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/operations/exchanged_window.hpp>

namespace weft::detail {

WEFT_INLINE Reach require_reach(const char* operation, std::size_t kernel, const ConvolutionOptions& options, std::size_t dim) {
  const std::size_t span = (std::max<std::size_t>(1, kernel) - 1) * options.dilation[dim] + 1, padding = options.padding[dim],
                    inside = padding + options.stride[dim];
  if (options.mode != PaddingMode::zeros)
    throw_error<ShapeError>({operation,
                             " over images that an axis cuts: the padding is of zeros, and this PaddingMode copies "
                             "elements, which lie on other ranks: gather the images, to<Invariant<axis>>(x)"});
  if (padding >= span || options.stride[dim] == 0)
    throw_error<ShapeError>({operation, " over images that an axis cuts: a window of ", span, " elements with stride ",
                             options.stride[dim], " and padding ", padding, ": the padding has fewer elements than the window"});
  return {padding, span > inside ? span - inside : 0};
}

}  // namespace weft::detail
