// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a training step eats: one dp rank's share of the global batch, cut into micro batches of equal size. Plain vectors on
// the host, so that a loader needs no device and a test can write one by hand.
//
//   Batch batch{.tokens = {1, 2, 3}, .targets = {2, 3, 4}, .sequences = 1, .length = 3};

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/core/error.hpp>

namespace weft {

/// One dp rank's share of one step. `tokens` and `targets` are [sequences, length], the sequence first (row-major); a
/// negative target is not counted in the loss.
struct Batch {
  std::vector<std::int32_t> tokens = {}, targets = {};  // [sequences * length]
  std::size_t sequences = 0;                  ///< of this share
  std::size_t length = 0;                     ///< tokens of a sequence
  std::size_t micro_batches = 1;              ///< divides `sequences`
  std::size_t first_sequence = 0;             ///< index in the global batch of this share's first sequence
  std::uint64_t step = 0;                     ///< the step that this batch belongs to: dropout is drawn for it

  std::size_t micro_batch_sequences() const { return sequences / micro_batches; }

  /// Throws ShapeError if the sizes do not fit each other.
  void check() const {
    if (tokens.size() != sequences * length || targets.size() != tokens.size())
      throw_error<ShapeError>({"batch: ", tokens.size(), " tokens and ", targets.size(), " targets, expected ", sequences, " sequences * ", length, " of each"});
    if (micro_batches == 0 || sequences % micro_batches != 0)
      throw_error<ShapeError>({"batch: sequences(", sequences, ") % micro batches(", micro_batches, ") != 0: every micro batch holds the same number of whole sequences"});
  }
};

}  // namespace weft
