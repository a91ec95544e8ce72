// SPDX-License-Identifier: Apache-2.0
#pragma once
// A batch and a context of a model without their types: the form in which a model is given to the engine (pipeline/stages.hpp).
// The typed half is pipeline/model_batch.hpp. Types come back in units (pipeline/typed_unit.hpp), in calls of user-written loops,
// and in predictions and logits.
//
//   batch.check(BatchUse::all);
//   Executor<Exec> executor(batch.place(axes.comm(pp{})), chunks, table, batch.share(), accumulator);

#include <cstddef>
#include <memory>

#include <weft/context/context.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/loss_count.hpp>

namespace weft::detail {

class StepBatch {
 public:
  using Exec = DefaultDevice::execution_space;

  StepBatch() = default;
  StepBatch(const StepBatch&) = delete;
  StepBatch& operator=(const StepBatch&) = delete;
  virtual ~StepBatch() = default;

  /// Throws UsageError or ShapeError for a batch that this model cannot take.
  virtual void check(BatchUse use) const = 0;
  /// Throws ShapeError for sequences that are longer than the model has positions for.
  virtual void check_length() const = 0;
  virtual BatchShare share() const = 0;
  virtual BatchStep step() const = 0;
  /// This rank's part of the count by which the loss is divided, and its tokens, or samples.
  virtual LossCounts counts() const = 0;
  /// Whether the batch consists of tokens, not of fields.
  virtual bool has_tokens() const = 0;

  virtual DefaultDevice& device() const = 0;
  /// Those of this batch's own copy of the context: an executor changes them while it runs.
  virtual Environment& env() = 0;
  virtual EngineState& engine() = 0;
  /// The typed context and inputs for the units of this model. Throws LayoutError if cp cannot cut the sequences.
  virtual const void* context() const = 0;
  virtual const void* inputs() = 0;

  /// `count` samples of a micro-batch from the `first` on, `times` times, as one micro-batch; null for a model of several units.
  virtual std::unique_ptr<StepBatch> some_samples(std::size_t micro, std::size_t first, std::size_t count,
                                                  std::size_t times) const = 0;
  /// Sends the first micro-batch to rank `to` of the data ranks, and returns that of rank `from`, to be computed by the data
  /// ranks in the order of `roles`, in which this rank is `from`.
  virtual std::unique_ptr<StepBatch> first_of_peer(const Communicator& data, const Communicator& roles, int to,
                                                   int from) const = 0;
  /// This batch without hooks, for a forward outside the wrappers.
  virtual std::unique_ptr<StepBatch> without_hooks() const = 0;
  /// All units of the model, without memory for their parameters.
  virtual WholeModel<Exec> build() const = 0;

  RunPlace<Exec> place(Communicator pipeline) { return {&device(), &env(), &engine(), context(), inputs(), std::move(pipeline)}; }
};

}  // namespace weft::detail
