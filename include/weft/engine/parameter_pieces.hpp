// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pieces of a parameter that all ranks keep between steps, as one rank can compute them without communication: they follow
// from the parameter's cuts and the order of ranks. No communication is needed, so a rehearsal has them too.
//
//   const ParameterPieces pieces = pieces_of(state, mesh.grids(), std::size_t(mesh.communicator().rank()));
//   pieces.of(pieces.holders[0])   // the runs of the first rank that keeps something

#include <cstddef>
#include <vector>

#include <weft/engine/parameter_state.hpp>
#include <weft/mesh/rank_order.hpp>

namespace weft::detail {

/// The ranks of this one's pipeline stage that keep elements of a parameter. Another stage that uses the same parameter has a
/// whole copy of its own.
struct ParameterPieces {
  struct Holder {
    std::size_t rank = 0;   ///< in the communicator of the whole mesh
    std::size_t piece = 0;  ///< ranks with the same elements have the same one
  };
  std::vector<Runs> pieces;
  std::vector<Holder> holders;  ///< in the order of ranks

  const Runs& of(const Holder& holder) const { return pieces[holder.piece]; }
};

/// `grids`: those of the mesh of the parameter's model, without axes if it has one rank; `rank`: this rank's number in them. The
/// parameter must be complete: its sharder, if it has one, has cut it.
ParameterPieces pieces_of(const ParameterState& state, const mesh_layout::RankGrids& grids, std::size_t rank);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/engine/parameter_pieces_impl.hpp>
#endif
