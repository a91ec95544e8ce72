// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of shapes for collectives along a dim. Definitions for tensor/to.hpp.

#include <weft/core/inline.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

WEFT_INLINE std::size_t piece_of(std::string_view axis, const Shape& shape, std::size_t dim, std::size_t ranks, bool movable) {
  if (dim >= shape.rank() || shape[dim] % ranks != 0)
    throw_error<ShapeError>(
        {"to<Shard<", axis, ", ", dim, ">>: dim ", dim, " of ", shape.text(), " is not divisible by ", axis, "(", ranks, ")",
         movable ? joined({": give the pieces that it gets, cut_pieces<Shard<", axis, ", ", dim, ">>(x)"}) : ""});
  return shape[dim] / ranks;
}

WEFT_COLD WEFT_INLINE void require_parts_of_whole(std::string_view axis, const Shape& shape, std::size_t dim, std::size_t ranks) {
  if (shape.sharding(dim) == DimSharding::even) return;
  throw_error<LayoutError>(
      {"to: dim ", dim, " of ", shape.text(), " is cut over ", axis, "(", ranks, ") ",
       shape.sharding(dim) == DimSharding::replicated ? "with elements that several ranks hold alike"
       : shape.sharding(dim) == DimSharding::padded   ? "with padding at the end"
                                                      : "by segments",
       ": the ranks' parts, one after the other, are not the whole; work on it as it lies (log_sum_exp, cross_entropy), bring "
       "columns home without their padding (gather_columns), or cut it evenly: an extent that the ranks divide, a "
       "ParameterSharding by heads"});
}

}  // namespace weft::detail
