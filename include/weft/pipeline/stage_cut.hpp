// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cut of a model's units into the stages of a pipeline: contiguous, at least one unit each. A stack is cut with the smallest
// possible cost of the most expensive stage. A recipe has equal blocks, which are cut by their number, and so is a stack if the
// numbers are given.
//
//   const std::vector<std::size_t> stage = cut_by_cost({1, 4, 4, 1}, 2);   // {0, 0, 1, 1}
//   const std::vector<std::size_t> stage = cut_by_count({2, 3});           // {0, 0, 1, 1, 1}

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

/// The stage of each unit, by the costs of the units. Among the cuts with the smallest maximum, the first stages hold as many
/// units as possible. Throws LayoutError if there are fewer units than stages. Numerics: deterministic.
WEFT_COLD inline std::vector<std::size_t> cut_by_cost(std::span<const double> costs, std::size_t stages) {
  const std::size_t units = costs.size();
  if (units < stages)
    throw_error<LayoutError>(
        {"units(", units, ") < stages(", stages, "): every stage of a pipeline holds at least one unit of the stack"});
  // The least maximum of the units from `first` on in `left` stages, for all of them.
  std::vector<std::vector<double>> least(stages + 1, std::vector<double>(units + 1, 0));
  for (std::size_t left = 1; left <= stages; ++left)
    for (std::size_t first = 0; first + left <= units; ++first) {
      double sum = 0, best = -1;
      for (std::size_t end = first + 1; end + left - 1 <= units; ++end) {
        sum += costs[end - 1];
        if (left == 1 && end != units) continue;
        const double worst = std::max(sum, least[left - 1][end]);
        if (best < 0 || worst < best) best = worst;
      }
      least[left][first] = best;
    }
  const double limit = least[stages][0];
  std::vector<std::size_t> stage(units);
  for (std::size_t unit = 0, at = 0; at < stages; ++at) {
    double sum = 0;
    const std::size_t after = stages - at - 1;
    do sum += costs[unit], stage[unit++] = at;
    while (units - unit > after && (after == 0 || sum + costs[unit] <= limit));
  }
  return stage;
}

/// The stage of each unit, by the number of units of each stage.
WEFT_COLD inline std::vector<std::size_t> cut_by_count(std::span<const std::size_t> units) {
  std::vector<std::size_t> stage;
  for (std::size_t at = 0; at < units.size(); ++at) stage.insert(stage.end(), units[at], at);
  return stage;
}

}  // namespace weft::detail
