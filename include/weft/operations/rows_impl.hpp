// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/rows.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/operations/rows.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE void require_two_dims(const char* operation, NamedOperand x, bool second) {
  const std::size_t dims = x.shape().rank();
  if (dims == 2 || (dims > 2 && !second)) return;
  if (dims > 2)
    throw_error<ShapeError>({call_text(operation, {x}),
                             ": an axis cuts dim 1, which are not the columns; use times_heads and "
                             "sum_heads, or merge_heads first"});
  throw_error<ShapeError>({call_text(operation, {x}), ": an axis cuts a tensor that is not a matrix of rows and columns"});
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_extents(const char* operation, NamedOperand x, std::size_t size, NamedOperand vector) {
  if (vector.shape().size() != size)
    throw_error<ShapeError>({call_text(operation, {x, vector}), ": the extents differ, ", size, " and ", vector.shape().size()});
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_last_if_odd(NamedOperand x, std::size_t dim) {
  const bool last = dim + 1 == x.shape().rank();
  if (last == (dim % 2 == 1)) return;
  throw_error<ShapeError>({call_text("sum_rows", {x}), ": an axis cuts ", last ? "the columns, " : "rows along ", "dim ", dim,
                           ": name the summed dims, sum<0>(flatten<0, ", x.shape().rank() - 2, ">(x))"});
}

}  // namespace weft::detail
