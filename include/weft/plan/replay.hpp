// SPDX-License-Identifier: Apache-2.0
#pragma once
// The replay of one step from the traces of a pipeline's stages: a compute stream for each stage, which does its kernels one
// after the other, and a lane for each of its communicators, which works beside it. The traces' messages meet each other.
//
//   const Replayed step = replay({&first, &last}, {.compute = ..., .message = ...});
//   step.seconds, step.stages[0].bubble

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/device/rehearsal_trace.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::plan {

/// Seconds of events.
struct EventCosts {
  /// A product, attention, another kernel or a copy.
  std::function<double(const RehearsedTrace::Event&)> compute;
  /// A message or a collective, once all its ranks are there and their lanes are free.
  std::function<double(const RehearsedTrace::Event&, const RehearsedTrace::Group&)> message;
  /// Messages move beside what is computed. False: each rank moves them when it waits for them, and computes nothing meanwhile.
  bool hides_messages = true;
  /// If it is more than one, ranks compute in turns, and the step takes at least what all of them do by the cores that there are.
  double ranks_per_core = 1;
};

/// Where a stage's time of a step goes, in seconds. They add up to the step.
struct StageTimes {
  double products = 0, attention = 0;
  double kernels = 0;                                  ///< others, and copies
  std::map<std::string, double, std::less<>> by_kind;  ///< these others: "norm", "host copies", ...
  double optimizer = 0;                                ///< all that is computed after the last action of the pipeline
  /// Waits for messages that their senders have not sent yet, and for stages that come later to a collective or to the end.
  double bubble = 0;
  std::map<std::string, double, std::less<>> exposed;  ///< waits for messages that are on their way, by axis

  double communication() const {
    double sum = 0;
    for (const auto& [axis, seconds] : exposed) sum += seconds;
    return sum;
  }
};

struct Replayed {
  double seconds = 0;
  std::vector<StageTimes> stages;  ///< by trace
  schedule::Table table;           ///< the actions of the pipeline
  schedule::Timeline timeline;     ///< their times in seconds
};

/// Replays one step. `traces`: one rank of each stage, which share a pipeline's communicator; or one trace. A rank that is in no
/// trace does what the one does that talks to it, at the same time. A message is on its way from its send on, whether its
/// receiver waits for it or not. Throws UsageError if a trace has no whole step, or waits for what no other trace sends.
Replayed replay(const std::vector<const RehearsedTrace*>& traces, const EventCosts& costs);

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/replay_impl.hpp>
#endif
