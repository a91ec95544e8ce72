// SPDX-License-Identifier: Apache-2.0
#pragma once
// The positions of the sequences in the text. Definitions for data/batches.hpp.

#include <weft/core/inline.hpp>
#include <weft/data/batches.hpp>

namespace weft::data {

WEFT_INLINE Batches::Batches(Share share, std::shared_ptr<const Corpus> corpus, BatchOptions options)
    : corpus_(std::move(corpus)), options_(options), share_(share) {
  if (options_.sequence == 0 || options_.global_batch == 0)
    throw_error<UsageError>(
        {"batches: sequence(", options_.sequence, ") and global batch(", options_.global_batch, ") must be at least 1"});
  corpus_->require(options_.sequence);
  if (options_.global_batch % share_.size != 0)
    throw_error<LayoutError>({"global batch(", options_.global_batch, ") % dp(", share_.size,
                              ") != 0: every dp rank takes the same number of sequences"});
  if (options_.micro_batch == 0) options_.micro_batch = sequences();
  if (sequences() % options_.micro_batch != 0)
    throw_error<LayoutError>({"global batch(", options_.global_batch, ") % (micro-batch(", options_.micro_batch, ") * dp(",
                              share_.size, ")) != 0: a rank's share is cut into whole micro-batches"});
}

WEFT_INLINE Batch Batches::training(std::uint64_t step) const {
  const auto text = corpus_->training();
  const std::size_t starts = text.size() - options_.sequence;  // a start needs `sequence` + 1 bytes
  const std::uint64_t key = key_of(options_.seed, site_of("data.sequence"));
  Batch batch = empty(step);
  for (std::size_t s = 0; s < batch.sequences; ++s) {
    const auto draw = Philox::draw(key, batch.first_sequence + s, step);
    const auto number = (std::uint64_t(draw.word[0]) << 32) | draw.word[1];
    fill(batch, s, text.subspan(static_cast<std::size_t>(number % starts)));
  }
  return batch;
}

WEFT_INLINE Batch Batches::validation(std::size_t index) const {
  const std::size_t used = validation_sequences();
  Batch batch = empty(index);
  for (std::size_t s = 0; s < batch.sequences; ++s) {
    const std::size_t sequence = index * options_.global_batch + batch.first_sequence + s;
    if (sequence >= used) continue;
    const std::size_t window = sequence * validation_windows() / used;
    fill(batch, s, corpus_->validation().subspan(window * options_.sequence));
  }
  return batch;
}

WEFT_INLINE std::size_t Batches::validation_targets(std::size_t index) const {
  const std::size_t first = index * options_.global_batch, used = validation_sequences();
  return first >= used ? 0 : std::min(options_.global_batch, used - first) * options_.sequence;
}

WEFT_INLINE Batch Batches::empty(std::uint64_t step) const {
  Batch batch;
  batch.sequences = sequences();
  batch.length = options_.sequence;
  batch.micro_batches = sequences() / options_.micro_batch;
  batch.first_sequence = share_.rank * sequences();
  batch.step = step;
  batch.tokens.assign(batch.sequences * batch.length, 0);
  batch.targets.assign(batch.sequences * batch.length, -1);
  return batch;
}

WEFT_INLINE void Batches::fill(Batch& batch, std::size_t sequence, std::span<const std::uint8_t> text) {
  for (std::size_t i = 0; i < batch.length; ++i) {
    batch.tokens[sequence * batch.length + i] = text[i];
    batch.targets[sequence * batch.length + i] = text[i + 1];
  }
}

}  // namespace weft::data
