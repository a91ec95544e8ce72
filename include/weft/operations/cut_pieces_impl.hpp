// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checks of moves of a cut between uneven pieces. Definitions for operations/cut_pieces.hpp.

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/operations/cut_pieces.hpp>

namespace weft::detail {

WEFT_INLINE std::vector<std::size_t> balanced_pieces(std::string_view axis, const Shape& shape, std::size_t dim,
                                                     std::size_t ranks) {
  const std::size_t whole = shape[dim];
  if (whole < ranks)
    throw_error<ShapeError>({"cut_pieces<Shard<", axis, ", ", dim, ">>: dim ", dim, " of ", shape.text(),
                             " has fewer elements than ", axis, "(", ranks, ") has ranks"});
  std::vector<std::size_t> pieces(ranks, whole / ranks);
  for (std::size_t i = 0; i < whole % ranks; ++i) ++pieces[i];
  return pieces;
}

WEFT_INLINE void require_pieces(std::string_view axis, const Shape& x, std::size_t rank, std::size_t ranks, const DimPieces& from,
                                const DimPieces& to) {
  const auto refuse = [&](const DimPieces& of, std::size_t wanted, const char* part) {
    throw_error<ShapeError>({"to<Shard<",
                             axis,
                             ", ",
                             to.dim,
                             ">>: dim ",
                             of.dim,
                             " of ",
                             x.text(),
                             " has ",
                             x[of.dim],
                             " elements, and the pieces ",
                             part,
                             " ",
                             wanted,
                             ", over ",
                             of.extents.size(),
                             " ranks of ",
                             axis,
                             "(",
                             ranks,
                             "): take those of this dim, cut_pieces<Shard<",
                             axis,
                             ", ",
                             of.dim,
                             ">>"});
  };
  if (from.extents.size() != ranks || x[from.dim] != from.extents[rank])
    refuse(from, rank < from.extents.size() ? from.extents[rank] : 0, "of this rank have");
  if (to.extents.size() != ranks || x[to.dim] != to.whole()) refuse(to, to.whole(), "together have");
}

}  // namespace weft::detail
