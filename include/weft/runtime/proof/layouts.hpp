// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layouts of a proof: all degrees of the axes that the program's meshes name, all stages of ZeRO and the schedules of a
// pipeline, as far as the program leaves them open. weft or the program refuses those that are not possible.
//
//   for (const ProofLayout& layout : layouts_of(notes_of_one_rank, 8)) ...

#include <vector>

#include <weft/device/proof.hpp>

namespace weft::runtime::detail {

using weft::detail::ProofLayout;
using weft::detail::ProofNotes;

/// Layouts of `least` to `ranks` ranks, those of few ranks first. `one`: the notes of the program on one rank.
std::vector<ProofLayout> layouts_of(const ProofNotes& one, int ranks, int least = 2);

}  // namespace weft::runtime::detail

#ifndef WEFT_COMPILED
#include <weft/runtime/proof/layouts_impl.hpp>
#endif
