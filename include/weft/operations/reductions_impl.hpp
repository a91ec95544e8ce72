// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/reductions.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/operations/reductions.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE void require_dims(const char* operation, NamedOperand x, std::size_t dims) {
  if (x.shape().rank() != dims)
    throw_error<ShapeError>({call_text(operation, {x}), ": ", x.shape().rank(), " dims, expected ", dims});
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_counted_once(const char* operation, const Shape& shape, Of of) {
  if (of == Of::gradients) return;
  for (std::size_t dim = 0; dim < shape.rank(); ++dim)
    if (shape.sharding(dim) == DimSharding::replicated || shape.sharding(dim) == DimSharding::padded)
      throw_error<LayoutError>({operation, ": dim ", dim, " of ", shape.text(), " is ",
                                shape.sharding(dim) == DimSharding::padded
                                    ? "padded, which a sum would count"
                                    : "held alike by several ranks, which a sum over them would count several times",
                                "; of the terms of a gradient (Of::gradients) every rank's count"});
}

}  // namespace weft::detail
