// SPDX-License-Identifier: Apache-2.0
#pragma once
// The replay of one step from the traces of a pipeline's stages. Each stage has a compute stream, which executes its kernels in
// order, and one lane per communicator, which works concurrently. Messages connect the traces.
//
//   const Replayed step = replay({&first, &last}, {.compute = ..., .message = ...});
//   step.seconds, step.stages[0].bubble

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <weft/core/inline.hpp>
#include <weft/device/rehearsal_trace.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::plan {

/// Seconds of events.
struct EventCosts {
  /// Seconds of a product, attention, another kernel or a copy.
  std::function<double(const RehearsedTrace::Event&)> compute;
  /// Seconds of a message or a collective, once all its ranks have arrived and their lanes are free.
  std::function<double(const RehearsedTrace::Event&, const RehearsedTrace::Group&)> message;
  /// True: messages overlap with computation. False: a rank transfers a message when it waits for it, and computes nothing
  /// meanwhile.
  bool hides_messages = true;
  /// Above 1, ranks share cores, and a step takes at least the total work divided by the number of cores.
  double ranks_per_core = 1;
};

/// The parts of a stage's step, in seconds. They add up to the step.
struct StageTimes {
  double products = 0, attention = 0;
  double kernels = 0;                                  ///< other kernels, and copies
  std::map<std::string, double, std::less<>> by_kind;  ///< the same by kind: "norm", "host copies", ...
  double optimizer = 0;                                ///< all computation after the last action of the pipeline
  /// Waits for messages that are not sent yet, and for stages that reach a collective or the end later.
  double bubble = 0;
  std::map<std::string, double, std::less<>> exposed;  ///< waits for messages in transit, by axis

  double communication() const {
    double sum = 0;
    for (const auto& [axis, seconds] : exposed) sum += seconds;
    return sum;
  }
};

struct Replayed {
  double seconds = 0;
  std::vector<StageTimes> stages;  ///< one per trace
  schedule::Table table;           ///< the actions of the pipeline
  schedule::Timeline timeline;     ///< their start and end in seconds
};

/// Replays one step. `traces`: one rank of each stage that share a pipeline's communicator; or one trace. A rank without a trace
/// is assumed to reach each message when its peer does. A message is in transit from its send on, even if its receiver does not
/// wait yet. Throws UsageError if a trace has no whole step, or waits for a message that no other trace sends.
Replayed replay(const std::vector<const RehearsedTrace*>& traces, const EventCosts& costs);

}  // namespace weft::plan

#ifndef WEFT_COMPILED
#include <weft/plan/replay_impl.hpp>
#endif
