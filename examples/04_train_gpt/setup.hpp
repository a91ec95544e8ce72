// SPDX-License-Identifier: Apache-2.0
#pragma once
// From options to a run that can be: the layout against the rules, the corpus.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/data/corpus.hpp>
#include <weft/mesh/layout.hpp>

#include "options.hpp"

namespace train_gpt {

/// Sequences of a step where the user does not say: 8, or the next number that the ranks can share.
inline std::int64_t global_batch_of(const Options& o, std::int64_t dp) {
  if (o.global_batch) return *o.global_batch;
  const std::int64_t unit = dp * o.micro_batch.value_or(1);
  return (8 + unit - 1) / unit * unit;
}

/// Sequences of a micro batch where the user does not say: the whole share, and under a pipeline a part of it that gives two
/// micro batches a stage or more.
inline std::int64_t micro_batch_of(const Options& o, std::int64_t share) {
  if (o.micro_batch) return *o.micro_batch;
  if (o.pp == 1) return share;
  std::int64_t micro_batches = std::min(share, 2 * o.pp);
  while (share % micro_batches != 0) ++micro_batches;
  return share / micro_batches;
}

/// The layout with every rule checked; fills in the options that were left open. Throws LayoutError, the same on every rank.
inline weft::ResolvedLayout resolve_layout(Options& o, std::size_t world) {
  weft::Layout layout{.world = std::int64_t(world), .tp = o.tp, .pp = o.pp, .dp = o.dp, .layers = o.layers, .heads = o.heads,
                      .kv_heads = o.kv_heads};
  const auto dp = std::int64_t(weft::resolve(layout).dp);  // the degrees first: what follows depends on dp
  o.global_batch = global_batch_of(o, dp);
  o.micro_batch = micro_batch_of(o, *o.global_batch % dp == 0 ? *o.global_batch / dp : 1);
  o.dp = dp;
  o.ranks = std::int64_t(world);
  if (!o.kv_heads) o.kv_heads = o.heads;
  layout.global_batch = o.global_batch;
  layout.micro_batch = *o.micro_batch;
  return weft::resolve(layout);
}

/// The text that the options name, or weft's own. Throws UsageError.
inline std::shared_ptr<const weft::data::Corpus> read_corpus(const Options& o) {
  std::vector<std::filesystem::path> files(o.data.begin(), o.data.end());
  if (files.empty()) files = weft::data::source_files(WEFT_SOURCE_FOLDER);
  if (files.empty())
    throw weft::UsageError("data: the default corpus is weft's own text in '" WEFT_SOURCE_FOLDER "', which is not there: give files with --data");
  auto corpus = std::make_shared<const weft::data::Corpus>(weft::data::Corpus::read(files, {o.validation_fraction}));
  corpus->require(std::size_t(o.sequence));
  return corpus;
}

}  // namespace train_gpt
