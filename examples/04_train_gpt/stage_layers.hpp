// SPDX-License-Identifier: Apache-2.0
#pragma once
// --pp-layers: the layers of each stage of the pipeline, as numbers or by rehearsed cost.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/mesh/world.hpp>
#include <weft/plan/balanced_stages.hpp>

#include "options.hpp"
#include "rehearse.hpp"
#include "setup.hpp"

namespace train_gpt {

/// "7,8,8,7", as --pp-layers takes them.
inline std::string numbers(const std::vector<std::size_t>& counts) {
  std::string text;
  for (const std::size_t count : counts) text += (text.empty() ? "" : ",") + std::to_string(count);
  return text;
}

/// The costs of one layer, the embedding and the head, as an H100 has them: equal on every rank and in every run, so that a run
/// that resumes has the same stages.
inline weft::plan::StageCosts rehearsed_costs(Options o) {
  o.pp = 3, o.layers = 3, o.schedule = "1f1b", o.vpp.reset(), o.pp_layers.clear();
  o.zero = 0, o.replicate = 1, o.offload = "none", o.reproducible = o.trace_nonfinite = false, o.recheck = 0,
  o.checkpoint.clear();
  std::int64_t dp = 1;
  while (dp * o.tp * o.cp % (o.ep * o.etp.value_or(o.model == "mixtral" ? o.tp : 1)) != 0) ++dp;
  o.dp = dp, o.ranks = 3 * dp * o.tp * o.cp;
  if (!o.micro_batch) o.micro_batch = 1;
  o.global_batch = 3 * dp * *o.micro_batch;
  return weft::plan::stage_costs({.ranks = int(*o.ranks)}, weft::plan::known_machine("h100"),
                                 [&](weft::World& world) { rehearse_steps(world, o, false); });
}

/// The numbers by cost. Rehearses, so Kokkos is initialised.
inline std::vector<std::size_t> layers_by_cost(const Options& o) {
  return weft::plan::balanced_stages(std::size_t(o.layers), *schedule_of(o), int(o.pp), rehearsed_costs(o));
}

/// Replaces `auto` by numbers. Collective: rank 0 rehearses; in a rehearsal each rank does.
inline void choose_stage_layers(const weft::World& world, Options& o) {
  if (o.pp_layers != "auto") return;
  std::vector<std::size_t> layers(std::size_t(o.pp) * std::size_t(schedule_of(o)->chunks()));
  const bool rehearsed = world.communicator().rehearsed();
  if (rehearsed || world.rank() == 0) layers = layers_by_cost(o);
  if (!rehearsed) world.communicator().broadcast(layers, 0);
  o.pp_layers = numbers(layers);
}

}  // namespace train_gpt
