// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of a layout's notes with those of one rank, tensor by tensor in the order of computation.
//
//   compare(one, layout, [&](const ProofDifference& found) { if (found.size > bound) ... });

#include <functional>
#include <string>

#include <weft/device/proof.hpp>

namespace weft::runtime::detail {

using weft::detail::ProofNotes;
using weft::detail::ProofPhase;

/// The largest difference of one tensor.
struct ProofDifference {
  const ProofNotes::Key* key = nullptr;  ///< of the notes of one rank
  /// Over the tensor's largest element, or over 1e-3 of the phase's largest one: a gradient that is zero up to rounding has no
  /// size of its own. Kept values: over the tensor's largest element. Infinite if the tensor, or a number, is missing, and if a
  /// gradient or a parameter has another size.
  double size = 0;
  std::string text = {};  ///< "step 1, gradient, blocks.0.up, element 3: 0.5 instead of 0.25"
};

/// Calls f for each tensor of the one-rank run that a layout notes, too, and for losses, gradients and parameters that it lacks.
/// Calls left_out(key, reason) for the other tensors that it lacks, and for those of which samples are missing or have other
/// sizes.
void compare(const ProofNotes& one, const ProofNotes& other, const std::function<void(const ProofDifference&)>& f,
             const std::function<void(const ProofNotes::Key&, const char* reason)>& left_out = {});

}  // namespace weft::runtime::detail

#ifndef WEFT_COMPILED
#include <weft/runtime/proof/compare_impl.hpp>
#endif
