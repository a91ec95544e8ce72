// SPDX-License-Identifier: Apache-2.0
#pragma once
// ZeRO's formulas: the memory that a number of parameters needs on each data-parallel rank, without activations. A rehearsal
// (runtime/rehearse.hpp) gives a program's memory including activations.
//
//   plan::Bytes bytes = plan::zero_memory(7.5e9, 64, 3);   // 1.88 GB

#include <string_view>

#include <weft/core/error.hpp>

namespace weft::plan {

/// Bytes per rank, by purpose.
struct Bytes {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;  ///< AdamW's two moments, and the master copy of 16-bit parameters

  double total() const { return parameters + gradients + optimizer; }
};

/// Bytes per element of each kind.
struct ElementBytes {
  double value = 2, gradient = 2, optimizer = 12;
};

/// The bytes for "fp32", "bf16", "fp16" or "fp64", with AdamW. 16-bit types count as mixed precision, 2 + 2 + 12 bytes, as in the
/// literature and in every stage of FullyShardedDataParallel. Throws UsageError for other names.
inline ElementBytes element_bytes(std::string_view precision) {
  if (precision == "fp32") return {4, 4, 8};
  if (precision == "fp64") return {8, 8, 16};
  if (precision == "bf16" || precision == "fp16") return {2, 2, 12};
  throw_error<UsageError>({"precision '", precision, "': it can be fp32, bf16, fp16 or fp64"});
}

/// The bytes of `parameters` elements on each of `ranks` data-parallel ranks at a ZeRO stage (0: no sharding), without
/// activations (Rajbhandari et al., arXiv:1910.02054, figure 1).
inline Bytes zero_memory(double parameters, double ranks, int stage, const ElementBytes& bytes = {}) {
  const auto cut = [&](int from) { return stage >= from ? parameters / ranks : parameters; };
  return {bytes.value * cut(3), bytes.gradient * cut(2), bytes.optimizer * cut(1)};
}

}  // namespace weft::plan
