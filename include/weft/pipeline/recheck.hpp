// SPDX-License-Identifier: Apache-2.0
#pragma once
// A second computation of a micro-batch by another data rank (ModelOptions::numerics.recheck_every). A processor that computes
// wrong numbers without an error is invisible to its own rank. So each data rank computes the first micro-batch of the rank
// before it, too, before the step, and compares the bits of the gradients and of the loss with those of the step. If they differ,
// a third rank computes the micro-batch and decides which of the two is wrong; of two data ranks, both repeat their computation.
//
//   Recheck recheck(100, recorded);
//   if (recheck.due(step)) recheck.before_step(stages, batch, inputs);
//   ...                                                   // the step
//   recheck.after_step(stages, batch, inputs, losses);    // throws CorruptionError on every rank

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/gradient_bits.hpp>
#include <weft/pipeline/step_batch.hpp>

namespace weft::detail {

class Stages;

class Recheck {
 public:
  using Exec = StepBatch::Exec;
  /// The gradients of a micro-batch that this rank has computed again, and its loss.
  struct Result {
    GradientBits<Exec> bits;
    double loss = 0;  ///< 0 on ranks without the last stage
  };

  Recheck(std::uint64_t every, std::shared_ptr<RecordedGradients<Exec>> recorded)
      : every_(every), recorded_(std::move(recorded)) {}

  /// All ranks of the mesh, and this rank's data ranks. Collective.
  void over(const Communicator& everyone, const Communicator& data);
  bool due(std::uint64_t step) const { return step % every_ == 0; }
  /// Computes the first micro-batch of the data rank before this one. Leaves the gradients as a step that begins expects them,
  /// and the layers' buffers as they were. Collective over the mesh.
  void before_step(Stages& stages, StepBatch& batch, const TrainingInputs& inputs);
  /// Compares that micro-batch's bits with those of the step; `losses` are this rank's. Throws CorruptionError on every rank if
  /// any differ. Collective over the mesh.
  void after_step(Stages& stages, StepBatch& batch, const TrainingInputs& inputs, std::span<const double> losses);

 private:
  // Computes the first micro-batch of the data rank `distance` before this one.
  Result compute(Stages& stages, StepBatch& batch, const TrainingInputs& inputs, int distance, const Communicator& roles) const;
  [[noreturn]] void judge(Stages& stages, StepBatch& batch, const TrainingInputs& inputs, const std::vector<std::uint64_t>& own,
                          const std::vector<std::uint64_t>& checked);

  std::uint64_t every_;
  std::shared_ptr<RecordedGradients<Exec>> recorded_;
  Communicator everyone_;
  Communicator roles_;             // the data ranks, each in the place of the one before it
  std::optional<Result> checked_;  // of the rank before this one
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/recheck_impl.hpp>
#endif
