// SPDX-License-Identifier: Apache-2.0
#pragma once
// The division of a model's blocks among the stages of a pipeline by cost, since the first stage also has the embedding and the
// last the head. A rehearsal of three blocks in three stages gives the costs.
//
//   const auto costs = plan::stage_costs({.ranks = 3}, plan::known_machine("h100"), [&](World& world) { train(world, 3); });
//   ModelOptions options{.pipeline = {.layers = plan::balanced_stages(126, schedule::erase<schedule::Zbv>(), 16, costs)}};

#include <cstddef>
#include <functional>
#include <vector>

#include <weft/mesh/stage_layers.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/plan/machine.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft::plan {

using mesh_layout::StageCosts;

/// Seconds of the forward and the backward of a step in a model's front, in one block and in its back, on a machine.
/// `train(world)` makes a mesh with a pp of 3 over `of.ranks` ranks and a model of 3 blocks with one stage a rank, and trains for
/// two steps or more. Messages and the optimizer are not part of the costs. Throws UsageError if the program has another number
/// of stages; else throws as rehearse does.
StageCosts stage_costs(const RehearsedStages& of, const Machine& machine, const std::function<void(World&)>& train);

/// PipelineOptions::layers for `blocks` blocks on `ranks` pp ranks: mesh_layout::balanced_layers for the stages of a schedule.
std::vector<std::size_t> balanced_stages(std::size_t blocks, const schedule::AnySchedule& schedule, int ranks,
                                         const StageCosts& costs);

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/balanced_stages_impl.hpp>
#endif
