// SPDX-License-Identifier: Apache-2.0
#pragma once
// A measured timeline of the last training step. The executor records the start of each action, when its input has arrived, and
// its end. Recording is off by default; it reads the clock two or three times per action.
//
//   auto recording = std::make_shared<schedule::TimelineRecorder>();
//   Parallel model(mesh, config, {.pipeline = {.timeline = recording}});
//   model.train_step(batch);
//   const auto timeline = schedule::measured(*recording, mesh.comm(pp{}));      // collective; seconds
//   std::ofstream("step.svg") << schedule::to_svg(recording->table(), timeline, " s");  // to_trace(..., 1e6) for Perfetto

#include <algorithm>
#include <chrono>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// The times of one rank's last training step, in seconds of that rank's clock.
class TimelineRecorder {
 public:
  static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

  void reset(const Table& table) {
    table_ = table;
    start_.clear();
    end_.clear();
  }
  void start() { began_ = now(); }  ///< starts an action; called again when its input has arrived
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

/// The last step of all ranks of a pipeline, in seconds from the first action on, the same on every rank. Collective over
/// `pipeline`. The clocks of different machines are aligned by barriers, so they agree up to the time of a message.
Timeline measured(const TimelineRecorder& recording, const Communicator& pipeline);

}  // namespace weft::schedule

#ifndef WEFT_COMPILED
#include <weft/pipeline/schedule/timeline_impl.hpp>
#endif
