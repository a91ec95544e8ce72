// SPDX-License-Identifier: Apache-2.0
#pragma once
// The measurements of a rank's last training step: the time that it computed, and its messages by axis.
//
//   const comm::StepUse use = comm::use_of(world.communicator());   // after optimizer.step()
//   use.computing_s, use.axes[0].axis, use.axes[0].waiting_s, use.axes[0].bytes

#include <cstdint>
#include <string>
#include <vector>

#include <weft/comm/communicator.hpp>

namespace weft::comm {

struct StepUse {
  struct Axis {
    std::string axis;
    double waiting_s = 0;  ///< inside of calls and waits, of the same clock as computing_s: processor time leaves out sleep
    double bytes = 0;      ///< of messages, as in RehearsedWork::Messages
    std::uint64_t calls = 0;
  };
  /// The time of train_step outside of messages: of the clock if the rank has cores of its own, else processor time of its
  /// thread. On a GPU that is the time in which the host starts the work.
  double computing_s = 0;
  std::vector<Axis> axes;  ///< with messages since train_step began

  double waiting_s() const {
    double sum = 0;
    for (const Axis& axis : axes) sum += axis.waiting_s;
    return sum;
  }
};

/// Returns the measurements of this rank since its last train_step began. `ranks`: any communicator of the rank. A world of one
/// rank has no times.
inline StepUse use_of(const Communicator& ranks) {
  StepUse use;
  const FlightRecorder* const recorder = ranks.group()->flight().recorder;
  if (recorder == nullptr) return use;
  const RankTimes& times = recorder->times();
  use.computing_s = times.seconds(times.computed());
  for (const RankTimes::Axis& axis : times.axes())
    if (axis.calls != axis.at_step.calls)
      use.axes.push_back({axis.name, times.seconds(axis.ticks - axis.at_step.ticks), axis.bytes - axis.at_step.bytes,
                          axis.calls - axis.at_step.calls});
  return use;
}

}  // namespace weft::comm
