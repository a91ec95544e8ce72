// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for data/batch.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/data/batch.hpp>

namespace weft {

WEFT_INLINE std::size_t TokenBatch::tokens_before(std::size_t micro) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < micro; ++i) count += micro_batch(i).sequences * micro_batch(i).length;
  return count;
}

WEFT_COLD WEFT_INLINE void detail::refuse_absent_field(std::string_view name) {
  throw_error<UsageError>({"batch: field ", name,
                           " has no values, and the model reads it: predict and forward need the fields that they read, "
                           "train_step and evaluate need all"});
}
WEFT_COLD WEFT_INLINE void detail::refuse_other_device(std::string_view name) {
  throw_error<UsageError>({"batch: field ", name,
                           " is a View that was given with another device than the model's, whose kernels "
                           "would not wait for it: batch[field].view(model.device(), view)"});
}

WEFT_INLINE void TokenBatch::check(std::size_t vocabulary, detail::BatchUse use) const {
  check(use);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || std::size_t(tokens[i]) >= vocabulary ||
        (!targets.empty() && targets[i] >= 0 && std::size_t(targets[i]) >= vocabulary))
      refuse(i, vocabulary);
}

WEFT_INLINE void TokenBatch::check(detail::BatchUse use) const {
  const std::size_t expected_targets = use == detail::BatchUse::inputs && targets.empty() ? 0 : tokens.size();
  if (!documents.empty()) check_documents();
  if (!differing.empty()) return check_differing(expected_targets);
  if (tokens.size() != sequences * length || targets.size() != expected_targets)
    throw_error<ShapeError>({"batch: ", tokens.size(), " tokens and ", targets.size(), " targets, expected ", sequences,
                             " sequences * ", length, " of each"});
  if (micro_batches == 0 || sequences % micro_batches != 0)
    throw_error<ShapeError>({"batch: sequences(", sequences, ") % micro-batches(", micro_batches,
                             ") != 0: every micro-batch holds the same number of whole sequences"});
}

WEFT_COLD WEFT_INLINE void TokenBatch::refuse(std::size_t at, std::size_t vocabulary) const {
  const bool token = tokens[at] < 0 || std::size_t(tokens[at]) >= vocabulary;
  throw_error<UsageError>({"batch: ", token ? "token(" : "target(", token ? tokens[at] : targets[at], ") at place ", at,
                           " is not in the vocabulary(", vocabulary, ")"});
}

WEFT_COLD WEFT_INLINE void TokenBatch::check_documents() const {
  if (documents.size() != tokens.size())
    throw_error<ShapeError>({"batch: ", documents.size(), " documents for ", tokens.size(),
                             " tokens: TokenBatch::documents has the document of each token, or is empty"});
  std::size_t at = 0;
  for (std::size_t micro = 0; micro < micro_batches; ++micro)
    for (std::size_t sequence = 0; sequence < micro_batch(micro).sequences; ++sequence)
      for (std::size_t i = 0; i < micro_batch(micro).length && at < documents.size(); ++i, ++at) {
        const std::int32_t here = documents[at], before = i == 0 ? here : documents[at - 1];
        if (here == before || (before >= 0 && (here > before || here < 0))) continue;
        throw_error<UsageError>({"batch: document(", here, ") at place ", at, " follows document(", before,
                                 ") in one sequence: the tokens of a document lie together, numbers rise from document to "
                                 "document, and a negative one is padding at the sequence's end"});
      }
}

WEFT_COLD WEFT_INLINE void TokenBatch::check_differing(std::size_t expected_targets) const {
  if (differing.size() != micro_batches)
    throw_error<ShapeError>({"batch: ", differing.size(), " differing micro-batches, micro-batches(", micro_batches, ")"});
  for (const MicroBatch& micro : differing)
    if (micro.sequences == 0 || micro.length == 0 || micro.length > length)
      throw_error<ShapeError>({"batch: a micro-batch of ", micro.sequences, " sequences of ", micro.length,
                               " tokens; there must be at least one of 1 to ", length, " tokens, the batch's length"});
  if (sequences_before(micro_batches) != sequences || tokens_before(micro_batches) != tokens.size() ||
      targets.size() != expected_targets)
    throw_error<ShapeError>({"batch: ", sequences, " sequences, ", tokens.size(), " tokens and ", targets.size(),
                             " targets, but its micro-batches hold ", sequences_before(micro_batches), " sequences and ",
                             tokens_before(micro_batches), " of each"});
}

}  // namespace weft
