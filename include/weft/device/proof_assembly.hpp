// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors that the pieces of all ranks make in a proof: those of tp are joined or added, and those of dp cut into samples, so
// that layouts with other micro-batches have the same parts.
//
//   assemble(notes);   // after the run

#include <weft/core/inline.hpp>
#include <weft/device/proof.hpp>

namespace weft::detail {

/// Turns the pieces of results into their parts.
void assemble(ProofNotes& notes);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/device/proof_assembly_impl.hpp>
#endif
