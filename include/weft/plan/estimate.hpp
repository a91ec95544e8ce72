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

#include <weft/plan/machine.hpp>
#include <weft/plan/replay.hpp>
#include <weft/plan/this_machine.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft::plan {

/// The time of a training step of a rehearsed layout on a machine, with its parts.
struct Estimate {
  std::string machine;
  int ranks = 1;
  double seconds = 0;  ///< per step
  /// FLOPs of all ranks: products and attention as executed, including recomputation. Causal attention counts half.
  double flops = 0;
  /// FLOPs of all ranks: three times the forward, without recomputation. Frozen layers count as if they were trained.
  double model_flops = 0;
  double peak_flops = 0;  ///< per second on all ranks, for the element type of most products
  double tokens = 0;      ///< per step: rows of samples that enter the model
  Replayed replayed;      ///< the step of each stage

  double tokens_per_second() const { return tokens / seconds; }
  /// Model FLOPs utilisation: model_flops divided by the FLOPs that the machine could do in this time.
  double share_of_peak() const { return model_flops / (peak_flops * seconds); }
  /// Hardware FLOPs utilisation: the same for `flops`.
  double hardware_share() const { return flops / (peak_flops * seconds); }
};

/// Seconds of the events in the notes' trace, for your own replay. Both arguments must outlive the result.
EventCosts costs_of(const Rehearsal& notes, const Machine& machine);

/// Estimates the step of stages that were rehearsed with a trace (RehearsedStages::trace). Throws UsageError without one.
Estimate estimate(const std::vector<RehearsedStage>& stages, const Machine& machine);

/// Rehearses `f(world)` on all distinct ranks and estimates its last step. Throws as rehearse does.
Estimate estimate(RehearsedStages of, const Machine& machine, const std::function<void(World&)>& f);

/// A text table: the step, its speed, and the parts of each stage's time.
std::string table_of(const Estimate& step);
/// The same as one JSON object: seconds by part, each stage in "stages", the other kernels by kind in "kernels".
std::string json_of(const Estimate& step);

namespace detail {
/// Texts for programs run with WEFT_MACHINE. Also writes the SVG file that WEFT_ESTIMATE_SVG names.
runtime::detail::EstimateTexts estimate_for_people(const std::vector<RehearsedStage>& stages, std::string_view machine);
void require_machine(std::string_view machine);
inline const bool people_may_ask =
    (runtime::detail::require_machine = &require_machine, runtime::detail::estimate_for_people = &estimate_for_people) != nullptr;
}  // namespace detail

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/estimate_impl.hpp>
#endif
