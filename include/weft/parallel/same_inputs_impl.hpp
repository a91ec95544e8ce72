// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/same_inputs.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>

#include <weft/core/inline.hpp>
#include <weft/parallel/same_inputs.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void refuse_construction(const Difference& found, int ranks, std::span<const OptionWord> options,
                                               std::uint64_t numbers) {
  const bool option = found.word < options.size();
  const std::string what = option ? joined({"ModelOptions::", options[found.word].name})
                                  : joined({"field ", found.word - options.size() + 1, " of the model's Config"});
  const bool shown = option ? options[found.word].shown : (numbers >> (found.word - options.size()) & 1) != 0;
  const std::string values = shown ? joined({" is ", found.on_first, " on rank 0 and ", found.on_rank, " on rank ", found.rank})
                                   : joined({" on rank ", found.rank, " is not that on rank 0"});
  throw_error<UsageError>({what, values, " of ", ranks, ": all ranks make a model with the same seed, options and config",
                           option ? "" : " (fields count from 1)",
                           "; read them on one rank and broadcast, or give each rank the same arguments"});
}

WEFT_OUT_OF_LINE WEFT_INLINE BatchWords words_of(const TokenBatch& batch, std::uint64_t step) {
  std::uint64_t differing = 0;
  for (const MicroBatch& micro : batch.differing) differing = hash_of(hash_of(differing, micro.sequences), micro.length);
  return {{step, batch.first_sequence, batch.sequences, batch.length, batch.micro_batches, differing,
           hash_bytes(batch.tokens.data(), batch.tokens.size() * sizeof(std::int32_t)),
           hash_bytes(batch.targets.data(), batch.targets.size() * sizeof(std::int32_t)),
           hash_bytes(batch.documents.data(), batch.documents.size() * sizeof(std::int32_t))},
          {"step", "first_sequence", "sequences", "length", "micro_batches", "differing", "tokens", "targets", "documents"},
          5};
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_same_batch(std::span<const BatchAxis> axes, const BatchWords& batch) {
  for (const BatchAxis& axis : axes) {
    std::vector<std::uint64_t> words = batch.words;
    for (std::size_t i = 0; i < batch.cut_over.size(); ++i)
      if ((batch.cut_over[i] & axis.bit) != 0) words[i] = 0;
    const auto found = difference(*axis.ranks, words);
    if (!found) continue;
    const std::string_view name = batch.names[found->word];
    if (found->word >= batch.extents)
      throw_error<UsageError>({"batch: field ", name, " has the extent ", found->on_first, " in dim ",
                               (found->word - batch.extents) % (Shape::max_rank - 1) + 1, " of [samples, ...] on ", axis.name,
                               " rank 0 and ", found->on_rank, " on ", axis.name, " rank ", found->rank, ": ", axis.name,
                               " does not cut this dim, so its ranks have pieces of one extent there"});
    const std::string values = found->word < batch.shown
                                   ? joined({name, " is ", found->on_first, " on ", axis.name, " rank 0 and ", found->on_rank,
                                             " on ", axis.name, " rank ", found->rank})
                                   : joined({name, " on ", axis.name, " rank ", found->rank,
                                             name == "tokens" || name == "targets" || name == "documents" ? " are" : " is",
                                             " not ", axis.name, " rank 0's"});
    throw_error<UsageError>({"batch: ", values, ": the ", axis.ranks->size(), " ranks of ", axis.name,
                             " work on one share, so each takes the same Batch: make it for mesh.rank(dp{}) of mesh.size(dp{}), "
                             "not for the rank in the world"});
  }
}

struct SampleShare {
  std::uint64_t first, count, step;
};

/// Throws UsageError unless the shares, which are not in the order of the ranks, are contiguous in some other order.
WEFT_COLD WEFT_INLINE void require_contiguous(const std::vector<SampleShare>& all, std::string_view axis, bool tokens) {
  const std::string_view sample = tokens ? "sequence" : "sample",
                         member = tokens ? "Batch::first_sequence" : "the batch's first_sample";
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].step != all[0].step)
      throw_error<UsageError>(
          {"batch: step ", all[0].step, " on ", axis, " rank 0, ", all[i].step, " on ", axis, " rank ", i,
           ": ranks are at different steps; give each the same Batch::step, the number of the training step"});
    if (all[i].count != 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return all[a].first < all[b].first; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::size_t end = all[order[i - 1]].first + all[order[i - 1]].count, begin = all[order[i]].first;
    const std::string rank = joined({axis, " rank ", order[i]}), before = joined({axis, " rank ", order[i - 1]}),
                      set = joined({"set ", member, " to the index "});
    if (begin < end)
      throw_error<UsageError>({"batch: ", rank, "'s share begins at ", sample, " ", begin, ", which ", before, "'s share [",
                               all[order[i - 1]].first, ", ", end, ") holds: ", set, "in the global batch of the share's first ",
                               sample, " (dropout goes by it)"});
    if (begin > end)
      throw_error<UsageError>({"batch: ",
                               sample,
                               "s ",
                               end,
                               " to ",
                               begin - 1,
                               " of the global batch are in no share: ",
                               before,
                               "'s ends before ",
                               sample,
                               " ",
                               end,
                               ", ",
                               rank,
                               "'s begins at ",
                               begin,
                               "; ",
                               set,
                               "of the share's first ",
                               sample,
                               ", made for mesh.rank(dp{}) of mesh.size(dp{})"});
  }
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_micro_batches(std::span<const BatchAxis> axes, std::size_t micro_batches) {
  for (const BatchAxis& axis : axes) {
    const std::uint64_t words[] = {micro_batches};
    if (const auto found = difference(*axis.ranks, words))
      throw_error<UsageError>(
          {"batch: ", found->on_first, " micro-batches on ", axis.name, " rank 0, ", found->on_rank, " on ", axis.name, " rank ",
           found->rank,
           ": data ranks communicate in each micro-batch (they gather parameters, sum gradients or exchange tokens "
           "of experts), so give all shares the same number of micro_batches, of any sizes"});
  }
}

WEFT_OUT_OF_LINE WEFT_INLINE std::size_t require_shares(std::span<const BatchAxis> axes, const BatchShare& batch,
                                                        std::uint64_t step, bool tokens) {
  constexpr std::size_t facts = 4;
  std::vector<std::uint64_t> words{batch.first, batch.samples, step, batch.length};
  std::string axis;  // names of all axes, the fastest first
  for (const BatchAxis& one : axes) {
    const std::vector<std::uint64_t> mine = words;
    words.resize(mine.size() * std::size_t(one.ranks->size()));
    one.ranks->all_gather(mine, words);
    append_to(axis, {axis.empty() ? "" : "-", one.name});
  }
  std::vector<SampleShare> all;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < words.size(); i += facts) {
    all.push_back({words[i], words[i + 1], words[i + 2]});
    longest = std::max(longest, std::size_t(words[i + 3]));
  }
  if (!axes.empty() && axes.front().ranks->rehearsed()) return longest;  // all that is known of the others is this rank's share
  // The common case: shares in the order of the ranks.
  bool in_order = true;
  for (std::size_t i = 0; i < all.size() && in_order; ++i)
    in_order = all[i].step == all[0].step && all[i].count != 0 && (i == 0 || all[i].first == all[i - 1].first + all[i - 1].count);
  if (in_order) return longest;
  require_contiguous(all, axis, tokens);
  return longest;
}

WEFT_INLINE BatchAxes batch_axes(const AxesInForce& axes, std::span<Hooks* const> hooks) {
  BatchAxes all;
  const auto add = [&](const AxesInForce::One* axis) {
    if (axis != nullptr && axis->ranks.size() > 1)
      (axis->data ? all.data : all.same).push_back({axis->name, &axis->ranks, 1u << axis->id});
  };
  add(axes.one(tp{}));
  add(axes.one(cp{}));
  add(axes.one(pp{}));
  add(axes.one(dp{}));
  axes.for_each([&](const AxesInForce::One& axis) {
    if (axis.id >= axis_count) add(&axis);
  });
  all.meets = axes.size(ep{}) > 1 ||
              std::any_of(hooks.begin(), hooks.end(), [](const Hooks* one) { return one->meets_each_micro_batch(); });
  return all;
}

WEFT_INLINE void require_prompt(const BatchAxes& axes, std::span<const std::int32_t> tokens) {
  require_batches(axes, 0, TokenBatch{.tokens = {tokens.begin(), tokens.end()}, .sequences = 1, .length = tokens.size()}, false);
}

WEFT_INLINE void require_prompts(const BatchAxes& axes, std::span<const std::vector<std::int32_t>> tokens) {
  TokenBatch all{.sequences = tokens.size(), .length = 0};
  for (const auto& one : tokens) {
    all.tokens.insert(all.tokens.end(), one.begin(), one.end());
    all.targets.push_back(std::int32_t(one.size()));
  }
  all.length = all.tokens.size();
  require_batches(axes, 0, all, false);
}

}  // namespace weft::detail
