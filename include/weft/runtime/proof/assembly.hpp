// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors that the pieces of all ranks make in a proof: those of tp are joined or added, those of cp put at their positions
// of a sequence, and those of dp cut into samples, so that layouts with other micro-batches have the same parts. Copies
// become one part.
//
//   assemble(notes);   // after the run

#include <weft/device/proof.hpp>

namespace weft::detail {

/// Turns the pieces of results into their parts, and copies into one.
void assemble(ProofNotes& notes);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/runtime/proof/assembly_impl.hpp>
#endif
