// SPDX-License-Identifier: Apache-2.0
#pragma once
// The estimate of a step's time from a rehearsal with a trace: every stage's events replayed with a machine's speeds.
//
//   const Estimate step = plan::estimate({.ranks = 512}, plan::known_machine("h100"), [](World& world) { train(world); });
//   WEFT_REHEARSE=512 WEFT_MACHINE=h100 ./program     // for any program that includes this header
//   std::puts(plan::table_of(step).c_str());          // step.seconds, step.tokens_per_second(), step.share_of_peak()
//   std::ofstream("step.svg") << schedule::to_svg(step.replayed.table, step.replayed.timeline, " s");

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/plan/machine.hpp>
#include <weft/plan/replay.hpp>
#include <weft/plan/this_machine.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft::plan {

struct Estimate {
  std::string machine;
  int ranks = 1;
  double seconds = 0;  ///< of a step
  /// Of all ranks: of products and attention as they are done, what is recomputed too, causal attention counted half.
  double flops = 0;
  /// Of all ranks: three times those of the forward, whatever is recomputed. What is not trained counts as if it were.
  double model_flops = 0;
  double peak_flops = 0;  ///< of all ranks in a second, for the elements of most products
  double tokens = 0;      ///< of a step: rows of samples that enter the model
  Replayed replayed;      ///< by stage

  double tokens_per_second() const { return tokens / seconds; }
  /// Model FLOPs utilisation: the FLOPs that the model needs, whoever computes them, of those that the machine has in this time.
  double share_of_peak() const { return model_flops / (peak_flops * seconds); }
  /// The same of all FLOPs that are done.
  double hardware_share() const { return flops / (peak_flops * seconds); }
};

/// Seconds of the events of these notes' trace, for a replay of one's own. Both must live as long as the result.
EventCosts costs_of(const Rehearsal& notes, const Machine& machine);

/// The step of these stages, which were rehearsed with a trace (RehearsedStages::trace). Throws UsageError if they were not.
Estimate estimate(const std::vector<RehearsedStage>& stages, const Machine& machine);

/// Rehearses `f(world)` as all ranks that differ, and estimates its last step. Throws as rehearse does.
Estimate estimate(RehearsedStages of, const Machine& machine, const std::function<void(World&)>& f);

/// For people: the step, its speed, and where each stage's time goes.
std::string table_of(const Estimate& step);
/// One JSON object of the same: seconds by part, of each stage in "stages", and the other kernels by kind in "kernels".
std::string json_of(const Estimate& step);

namespace detail {
/// For programs that are asked by WEFT_MACHINE. Also writes the picture that WEFT_ESTIMATE_SVG names.
runtime::detail::EstimateTexts estimate_for_people(const std::vector<RehearsedStage>& stages, std::string_view machine);
void require_machine(std::string_view machine);
inline const bool people_may_ask =
    (runtime::detail::require_machine = &require_machine, runtime::detail::estimate_for_people = &estimate_for_people) != nullptr;
}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/estimate_impl.hpp>
#endif
