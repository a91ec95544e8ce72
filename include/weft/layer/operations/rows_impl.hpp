// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for layer/operations/rows.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/layer/operations/rows.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE void require_two_dims(const char* operation, const Shape& shape, bool second) {
  if (shape.rank() == 2 || (shape.rank() > 2 && !second)) return;
  if (shape.rank() > 2)
    throw_error<ShapeError>({operation, ": an axis cuts dim 1 of ", shape.text(),
                             ", which are not its columns; use times_heads and sum_heads, or merge_heads first"});
  throw_error<ShapeError>({operation, ": an axis cuts ", shape.text(), ", which is not a matrix of rows and columns"});
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_extents(const char* operation, const Shape& shape, std::size_t columns,
                                                  const Shape& vector, std::size_t size) {
  if (columns != size) throw_error<ShapeError>({operation, ": ", shape.text(), " beside ", vector.text()});
}

}  // namespace weft::detail
