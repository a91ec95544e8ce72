// SPDX-License-Identifier: Apache-2.0
#pragma once
// A whole model on one rank of a rehearsal, outside the rehearsal's records and counts. A forward of all units computes the
// shapes that other stages determine.
//
//   ModelAside aside(batch, schedule, ranks, accumulator);
//   AnyValue hidden = aside.forward(micro, [](std::size_t unit, AnyValue& hidden) { ... });

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <weft/engine/gradient_accumulator.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/table.hpp>
#include <weft/pipeline/step_batch.hpp>

namespace weft::detail {

/// All units of a model on this rank; while it lives nothing is noted or counted.
class ModelAside {
  using Exec = StepBatch::Exec;

 public:
  ModelAside(const StepBatch& batch, const schedule::AnySchedule& schedule, int ranks, GradientAccumulator& accumulator);

  const WholeModel<Exec>& whole() const { return whole_; }
  /// The arguments of a unit's functions for a micro-batch.
  UnitCall call_of(std::size_t micro) const { return run_->call_of(micro); }

  /// Runs a micro-batch and returns the last unit's input. Calls `f(unit, hidden)` after each unit before it.
  AnyValue forward(std::size_t micro, const std::function<void(std::size_t, AnyValue&)>& f);

 private:
  RehearsedAside<Exec> aside_;
  std::unique_ptr<StepBatch> batch_;
  WholeModel<Exec> whole_;
  schedule::Table table_;
  std::vector<std::unique_ptr<Chunk<Exec>>> none_;
  std::unique_ptr<Executor<Exec>> run_;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/model_aside_impl.hpp>
#endif
