// SPDX-License-Identifier: Apache-2.0
#pragma once
// The check of the pieces of a halo exchange. Definitions for tensor/halo.hpp.

#include <string>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/tensor/halo.hpp>

namespace weft::detail {

WEFT_INLINE void require_halo_rows(const HaloCall& call, const Shape& shape, std::size_t dim, std::size_t own,
                                   const HaloRows& rows) {
  const std::size_t asked = std::max(rows.to_previous, rows.to_next);
  const bool has_all =
      rows.to_next <= own + rows.before + rows.beyond.before && rows.to_previous <= own + rows.after + rows.beyond.after;
  if (own >= asked || (own != 0 && own >= rows.part && has_all)) return;
  std::string text = call.operation == nullptr ? "to<Halo<" : call.operation;
  if (call.operation == nullptr) append_to(text, {call.axis, ", ", dim, ", ...>>"});
  else append_to(text, {" over images that ", call.axis, " cuts"});
  append_to(text, {": ", shape.text(), ": the piece of a rank of ", call.axis, " has ", own, " rows along dim ", dim,
                   ", and a neighbour asks for ", asked});
  if (own < rows.part) append_to(text, {" of a ring, whose pieces have at least ", rows.part});
  else if (own != 0) append_to(text, {" at the border of the domain"});
  throw_error<ShapeError>(
      {text, ": cut the dim over fewer ranks, or take a ", call.operation == nullptr ? "narrower halo" : "smaller window"});
}

}  // namespace weft::detail
