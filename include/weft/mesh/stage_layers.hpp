// SPDX-License-Identifier: Apache-2.0
#pragma once
// The number of layers of each stage of a pipeline, in the order of the model: equal counts, counts by cost, and the rules for
// counts that a user gives.
//
//   even_layers(126, 16);                                                   // 7, 8, 8, 8, 8, 8, 8, 8, 7, 8, ...
//   balanced_layers(32, {0, 1, 2, 3}, {.front = 0.5, .block = 1, .back = 4});   // 9, 9, 9, 5

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <weft/core/error.hpp>

namespace weft::mesh_layout {

/// The cost of a model's front (its embedding), of one of its equal blocks and of its back (its head), in one unit.
struct StageCosts {
  double front = 0, block = 1, back = 0;
};

/// Counts that differ by one at most: stage s begins with layer `layers * s / stages`. Requires stages <= layers.
std::vector<std::size_t> even_layers(std::size_t layers, std::size_t stages);

/// The counts with which the most expensive rank costs least, and among these the ones with which the second costs least, and so
/// on. `rank_of[s]` is the rank of stage s. If ranks cost the same, later ones take more layers, since earlier ones keep more
/// micro-batches in flight. The first and the last stage may hold no layer if front or back cost as much as the others' layers;
/// the stages between hold at least one. Throws LayoutError for fewer layers than such stages, UsageError for a cost that is
/// negative or not finite, or a block without cost. Numerics: deterministic.
std::vector<std::size_t> balanced_layers(std::size_t layers, std::span<const std::size_t> rank_of, const StageCosts& costs);

/// Throws LayoutError unless `counts` gives `stages` stages all `layers`, and none of them no layer. With `ends` the first and
/// the last stage may have none, since they hold a front and a back; without it the text is of units instead of layers.
void require_stage_layers(std::span<const std::size_t> counts, std::size_t layers, std::size_t stages, bool ends = true);

/// "7, 8, 8, 7"; more than 20 counts are shortened.
std::string counts_text(std::span<const std::size_t> counts);

}  // namespace weft::mesh_layout

#ifndef WEFT_COMPILED
#include <weft/mesh/stage_layers_impl.hpp>
#endif
