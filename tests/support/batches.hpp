// SPDX-License-Identifier: Apache-2.0
#pragma once
// Batches that every layout of ranks cuts out of the same global one.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/data/batch.hpp>

namespace weft_test {

using namespace weft;

inline constexpr std::size_t batch_sequences = 8, batch_length = 8, batch_vocabulary = 19;

/// Data rank `rank` of `ranks`' share of step `step`, which the model counts: tokens are a function of their global index, some
/// targets are ignored.
inline Batch make_batch(std::uint64_t step, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  Batch batch;
  batch.sequences = batch_sequences / ranks;
  batch.length = batch_length;
  batch.micro_batches = micro_batches;
  batch.first_sequence = batch.sequences * rank;
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    const std::size_t index = batch.first_sequence * batch.length + i;
    batch.tokens.push_back(static_cast<std::int32_t>(key_of(step, index) % batch_vocabulary));
    batch.targets.push_back(index % 5 == 0 ? -1 : static_cast<std::int32_t>(key_of(step, index, 7) % batch_vocabulary));
  }
  return batch;
}

inline std::vector<std::int32_t> prompt() { return {3, 1, 4, 1, 5, 9, 2, 6}; }

}  // namespace weft_test
