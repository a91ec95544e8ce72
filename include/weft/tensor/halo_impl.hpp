// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check of the pieces of a halo exchange. Definitions for tensor/halo.hpp.

#include <weft/core/inline.hpp>
#include <weft/tensor/halo.hpp>

namespace weft::detail {

WEFT_INLINE void require_halo_rows(std::string_view axis, const Shape& shape, std::size_t dim, std::size_t own,
                                   const HaloRows& rows) {
  const std::size_t asked = std::max(rows.to_previous, rows.to_next);
  if (own < asked)
    throw_error<ShapeError>({"to<Halo<", axis, ", ", dim, ", ...>>: ", shape.text(), ": the piece of a rank of ", axis, " has ",
                             own, " rows along dim ", dim, ", and a neighbour asks for ", asked,
                             ": cut the dim over fewer ranks, or take a narrower halo"});
}

}  // namespace weft::detail
