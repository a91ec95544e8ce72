// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for mesh/stage_layers.hpp.

#include <algorithm>
#include <cmath>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/mesh/stage_layers.hpp>

namespace weft::mesh_layout {

WEFT_COLD WEFT_INLINE std::vector<std::size_t> even_layers(std::size_t layers, std::size_t stages) {
  std::vector<std::size_t> counts(stages);
  const auto first = [&](std::size_t stage) {  // layers * stage / stages, which may overflow
    return layers / stages * stage + layers % stages * stage / stages;
  };
  for (std::size_t stage = 0; stage < stages; ++stage) counts[stage] = first(stage + 1) - first(stage);
  return counts;
}

WEFT_COLD WEFT_INLINE std::vector<std::size_t> balanced_layers(std::size_t layers, std::span<const std::size_t> rank_of,
                                                               const StageCosts& costs) {
  for (const double cost : {costs.front, costs.block, costs.back})
    if (!(cost >= 0) || !std::isfinite(cost))
      throw_error<UsageError>({"stages by cost: a cost of ", std::to_string(cost), ": costs are finite and not negative"});
  if (costs.block == 0) throw_error<UsageError>({"stages by cost: a block costs 0"});
  const std::size_t stages = rank_of.size();
  std::vector<std::size_t> counts(stages);
  std::vector<double> rank_costs(*std::max_element(rank_of.begin(), rank_of.end()) + 1), stage_costs(stages);
  const auto add = [&](std::size_t stage, double cost) { rank_costs[rank_of[stage]] += cost, stage_costs[stage] += cost; };
  const auto add_layer = [&](std::size_t stage) { ++counts[stage], add(stage, costs.block); };
  add(0, costs.front), add(stages - 1, costs.back);
  if (stages > 2 && layers < stages - 2)
    throw_error<LayoutError>({"layers(", layers, ") < ", stages,
                              " stages - 2: every stage between the first and the last holds "
                              "at least one layer"});
  for (std::size_t stage = 1; stage + 1 < stages; ++stage) add_layer(stage);
  std::size_t left = layers - (stages > 2 ? stages - 2 : 0);
  while (left-- > 0) {  // blocks are equal, so each goes to the cheapest rank, and there to the cheapest stage
    std::size_t best = stages - 1;
    for (std::size_t stage = stages; stage-- > 0;) {
      const double rank = rank_costs[rank_of[stage]], least = rank_costs[rank_of[best]];
      if (rank < least || (rank == least && stage_costs[stage] < stage_costs[best])) best = stage;
    }
    add_layer(best);
  }
  return counts;
}

WEFT_COLD WEFT_INLINE std::string counts_text(std::span<const std::size_t> counts) {
  constexpr std::size_t most = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(counts.size(), most); ++i) weft::detail::append_to(text, {i == 0 ? "" : ", ", counts[i]});
  return counts.size() > most ? text + ", ..." : text;
}

WEFT_COLD WEFT_INLINE void require_stage_layers(std::span<const std::size_t> counts, std::size_t layers, std::size_t stages,
                                                bool ends) {
  const char* const noun = ends ? "layer" : "unit";
  const std::string given = weft::detail::joined({noun, "s of the stages (", counts_text(counts), "): "});
  if (counts.size() != stages)
    throw_error<LayoutError>({given, counts.size(), " numbers, but the pipeline has ", stages, " stages (pp * stages per rank)"});
  std::size_t sum = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    if (counts[stage] > layers - sum)
      throw_error<LayoutError>({given, "up to stage ", stage, " they are more than the model's ", layers, " ", noun, "s"});
    sum += counts[stage];
    if (counts[stage] == 0 && !(ends && (stage == 0 || stage + 1 == stages)))
      throw_error<LayoutError>({given, "stage ", stage, " holds no ", noun,
                                ends ? "; only the first stage, which holds the embedding, and the last, which holds the head, "
                                       "can do without"
                                     : ""});
  }
  if (sum != layers)
    throw_error<LayoutError>(
        {given, "their sum is ", sum, ", but the model has ", layers, " ", noun, "s: give numbers that sum to ", layers});
}

}  // namespace weft::mesh_layout
