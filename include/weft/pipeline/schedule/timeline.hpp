// SPDX-License-Identifier: Apache-2.0
#pragma once
// A timeline as measured: the executor notes when each action of the last training step began, once its input was there, and
// when it ended. Off unless asked for; then two readings of the clock an action.
//
//   auto recording = std::make_shared<schedule::TimelineRecorder>();
//   Parallel model(mesh, config, {.pipeline = {.timeline = recording}});
//   model.train_step(batch);
//   const auto timeline = schedule::measured(*recording, mesh.comm(pp{}));      // collective; seconds
//   std::ofstream("step.svg") << schedule::to_svg(recording->table(), timeline, " s");  // to_trace(..., 1e6) for Perfetto

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// One rank's times of its last step, in seconds of its own clock.
class TimelineRecorder {
 public:
  static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

  void begin(const Table& table) {
    table_ = table;
    start_.clear();
    end_.clear();
  }
  void start() { began_ = now(); }  ///< of an action; once more when its input has come
  void end() {
    start_.push_back(began_);
    end_.push_back(now());
  }

  const Table& table() const { return table_; }
  const std::vector<double>& starts() const { return start_; }
  const std::vector<double>& ends() const { return end_; }

 private:
  Table table_;
  std::vector<double> start_, end_;
  double began_ = 0;
};

namespace detail {

/// A moment that all ranks share, on each one's own clock. A rank may be late to see the end of a barrier, so it is taken from
/// many: the median of what this rank's clock is ahead of the first rank's.
double common_moment(const Communicator& pipeline);

}  // namespace detail

/// The last step of all ranks of a pipeline, from the first action on, in seconds, the same on every rank. Collective over
/// `pipeline`. Clocks of different machines are set by a barrier, so they agree to what a message takes.
Timeline measured(const TimelineRecorder& recording, const Communicator& pipeline);

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/timeline_impl.hpp>
#endif
