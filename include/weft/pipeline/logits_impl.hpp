// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/logits.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <numeric>

#include <weft/core/inline.hpp>
#include <weft/pipeline/logits.hpp>

namespace weft::detail {

WEFT_INLINE TokenBatch batch_of_sequence(const AxesInForce& axes, std::span<const std::int32_t> tokens, bool over_tp) {
  if (tokens.empty()) throw_error<UsageError>({"logits of no tokens: at least one is needed"});
  const std::size_t ranks = axes.size(cp{});
  std::size_t multiple = ranks > 1 ? 2 * ranks : 1;
  if (over_tp) multiple = ranks * std::lcm(multiple / ranks, axes.size(tp{}));
  TokenBatch whole{.sequences = 1, .length = (tokens.size() + multiple - 1) / multiple * multiple};
  whole.tokens.assign(tokens.begin(), tokens.end());
  whole.tokens.resize(whole.length);
  whole.targets.assign(whole.length, -1);
  if (whole.length != tokens.size()) {
    whole.documents.assign(whole.length, 1);  // the padding, because attention may see later tokens of its document
    std::fill_n(whole.documents.begin(), tokens.size(), 0);
  }
  return whole;
}

WEFT_INLINE std::vector<double> logits_of_sequence(Stages& stages, StepBatch& batch, LogitsOfUnit unit, std::size_t tokens,
                                                   std::size_t vocabulary) {
  const AxesInForce& axes = stages.axes();
  const std::size_t length = batch.share().length;
  const schedule::Table table = stages.forward_table(batch);
  std::vector<double> logits(length * vocabulary);
  const LogitRows rows{vocabulary, {length, axes.size(cp{}), axes.rank(cp{})}};
  stages.forward_to_last_unit(batch, table,
                              [&](auto& run, auto& layer) { unit(layer, run.call_of(0), run.last_hidden(0), rows, logits); });
  stages.finish(batch.engine().hooks);
  if (axes.has(pp{})) axes.comm(pp{}).broadcast(logits, stages.last_rank());
  logits.resize(tokens * vocabulary);
  return logits;
}

}  // namespace weft::detail
