// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of windows over cut images. Definitions for operations/window.hpp.

#include <weft/core/inline.hpp>
#include <weft/operations/window.hpp>

namespace weft::detail {

WEFT_INLINE void require_kernel(const char* operation, const Shape& weights, std::size_t dims, std::size_t kernel) {
  bool fits = weights.rank() == dims + 2;
  for (std::size_t dim = 2; dim < weights.rank(); ++dim) fits = fits && weights[dim] == kernel;
  if (!fits)
    throw_error<ShapeError>({operation, ": weights of ", weights.text(), " for a window of ", kernel, " elements in each of ",
                             dims, dims == 1 ? " dim" : " dims"});
}

}  // namespace weft::detail
