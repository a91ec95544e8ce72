// SPDX-License-Identifier: Apache-2.0
#pragma once
// The batch of a language model: one data-parallel rank's share of a global batch of tokens and targets, cut into micro-batches,
// which are of equal size unless `differing` is set. Plain vectors on the host, so that a loader needs no device and a test can
// write a batch by hand.
//
//   TokenBatch batch{.tokens = {1, 2, 3}, .targets = {2, 3, 4}, .sequences = 1, .length = 3};

#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/data/batch_share.hpp>

namespace weft {

/// One data-parallel rank's share of one step. `tokens` and `targets` are [sequences, length], row-major; a negative target is
/// not counted in the loss.
struct TokenBatch {
  std::vector<std::int32_t> tokens = {}, targets = {};  // [sequences * length]
  std::size_t sequences = 0;                            ///< of this share
  std::size_t length = 0;                               ///< tokens of a sequence; of the longest one if micro-batches differ
  std::size_t micro_batches = 1;                        ///< divides `sequences`
  std::size_t first_sequence = 0;                       ///< index in the global batch of this share's first sequence
  BatchStep step = {};                                  ///< for which dropout is drawn; unset: the model counts its steps
  /// The sizes of the micro-batches, [micro_batches], if they differ: {{4, 128}, {1, 512}}. Their tokens follow each other.
  std::vector<MicroBatch> differing = {};
  /// Packed sequences: the document of each token, [sequences * length]. Numbers rise from document to document of a sequence; -1
  /// is padding at its end. Attention and positions begin anew with each document. Empty: a sequence is one document. The last
  /// token of a document has no next one: its target is -1.
  std::vector<std::int32_t> documents = {};

  MicroBatch micro_batch(std::size_t micro) const {
    return differing.empty() ? MicroBatch{sequences / micro_batches, length} : differing[micro];
  }
  /// Sequences and tokens of this share before a micro-batch.
  std::size_t sequences_before(std::size_t micro) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < micro; ++i) count += micro_batch(i).sequences;
    return count;
  }
  std::size_t tokens_before(std::size_t micro) const;

  /// The share as the engine counts it; valid while the batch is.
  detail::BatchShare share() const { return {first_sequence, sequences, length, micro_batches, differing, documents}; }

  /// Throws ShapeError if the sizes do not fit each other, and UsageError for a token or target that is not in the vocabulary
  /// and for documents that are not in order. A batch of inputs may have no targets.
  void check(std::size_t vocabulary, detail::BatchUse use = detail::BatchUse::all) const;
  void check(detail::BatchUse use = detail::BatchUse::all) const;

 private:
  [[noreturn]] void refuse(std::size_t at, std::size_t vocabulary) const;
  void check_differing(std::size_t expected_targets) const;
  void check_documents() const;
};

/// The name of TokenBatch before there were others.
using Batch = TokenBatch;

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/data/batch_impl.hpp>
#endif
