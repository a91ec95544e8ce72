// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for plan/balanced_stages.hpp.

#include <algorithm>

#include <weft/plan/balanced_stages.hpp>
#include <weft/plan/estimate.hpp>

namespace weft::plan {

WEFT_COLD WEFT_INLINE StageCosts stage_costs(const RehearsedStages& of, const Machine& machine,
                                             const std::function<void(World&)>& train) {
  const std::vector<StageTimes> stages = estimate(of, machine, train).replayed.stages;
  if (stages.size() != 3)
    throw_error<UsageError>({"stage_costs: the program has ", stages.size(), " stages: it has a pp of 3, with one stage a rank"});
  const auto seconds = [&](std::size_t stage) {
    return stages[stage].products + stages[stage].attention + stages[stage].kernels;
  };
  const double block = seconds(1);
  return {std::max(0.0, seconds(0) - block), block, std::max(0.0, seconds(2) - block)};
}

WEFT_COLD WEFT_INLINE std::vector<std::size_t> balanced_stages(std::size_t blocks, const schedule::AnySchedule& schedule,
                                                               int ranks, const StageCosts& costs) {
  std::vector<std::size_t> rank_of(std::size_t(ranks) * std::size_t(schedule.chunks()));
  for (std::size_t stage = 0; stage < rank_of.size(); ++stage)
    rank_of[stage] = std::size_t(schedule.stage_rank(int(stage), ranks));
  return mesh_layout::balanced_layers(blocks, rank_of, costs);
}

}  // namespace weft::plan
