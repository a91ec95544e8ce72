// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of a rank on its stages of a model: training steps and evaluation. Nothing here depends on the type of the
// model or of the context: a call is given as a StepBatch (pipeline/step_batch.hpp). StagesOf<Model>
// (pipeline/stages_of.hpp), the innermost object that wrappers wrap, makes one of each call's batch.
//
//   double loss = stages.train_step(batch);

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/context/axes_in_force.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/engine/step_gradients.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/loss_count.hpp>
#include <weft/pipeline/model_facts.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/stage_shapes.hpp>
#include <weft/pipeline/stage_units.hpp>
#include <weft/pipeline/step_batch.hpp>

namespace weft::detail {

/// Sums the step buffers over all ranks with different tokens, in one message for each axis, and updates them. Collective.
void renew(const AxesInForce& axes, std::span<const std::shared_ptr<StepBuffer>> buffers);

class Stages {
 public:
  using Exec = StepBatch::Exec;
  using AllHooks = std::span<Hooks* const>;

  Stages(AxesInForce axes, StageSettings settings);
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;
  ~Stages();

  /// Throws LayoutError if a recipe has too few blocks for its stages.
  void require_blocks(std::size_t blocks) const;
  /// Names all ranks of the mesh, which compare micro-batches that are computed again. Throws LayoutError if no data rank could.
  void set_everyone(const Communicator& everyone);
  /// Takes this rank's units from the model, once. See StageUnits::build.
  void build(AllHooks hooks, ModelFacts facts, WholeModel<Exec> whole, const std::function<void(ParameterState&)>& make);

  /// One step: forward and backward of all micro-batches, gradients summed over every axis. Returns the mean loss in double over
  /// the counted tokens of the global batch, the same on every rank. Each call starts with new gradients; optimizer.step()
  /// applies them. Routers' auxiliary losses contribute to the gradients but not to the returned loss; buffers() holds them
  /// ("load", see Router). Throws UsageError on every rank if no target of the global batch counts.
  double train_step(StepBatch& batch);
  /// The mean loss of a batch, without dropout and without gradients. Throws UsageError as train_step does.
  double evaluate(StepBatch& batch);

  /// Every parameter of this rank, once.
  template <class F>
  void for_each_state(F&& f) {
    units_.for_each_state(std::forward<F>(f));
  }
  /// The values other than parameters that this rank's layers keep between steps.
  std::span<const std::shared_ptr<StepBuffer>> buffers() const { return units_.buffers(); }
  /// The first layer of the model that draws random numbers in a step; empty: none.
  const std::string& draws() const { return units_.draws(); }
  /// The names of all parameters of the model, in its order; the same on every rank.
  const std::vector<std::string>& parameter_names() const { return units_.parameters().names(); }
  /// Number of elements of the whole parameter of that name, on any rank; 0 if there is none.
  std::size_t parameter_size(std::string_view name) const { return units_.parameters().size_of(name); }
  /// Makes the parameters that a pattern matches trainable or frozen; see Wrapper::freeze. Collective over `everyone`.
  void set_trainable(AllHooks hooks, const Communicator& everyone, std::span<const std::string_view> patterns, bool trainable);
  /// True if neither the first nor the last unit uses the parameter: it is neither an embedding nor a head.
  bool inner(const ParameterState& state) const { return units_.inner(state); }
  /// Number of changes to the set of trainable parameters.
  std::uint64_t trainable_changes() const { return changes_; }

  /// Shared with the optimizers of this model.
  const std::shared_ptr<StepGradients>& gradients() const { return gradients_; }
  const schedule::AnySchedule& schedule() const { return units_.settings().schedule; }
  /// The accumulator that adds up the gradients of this model; shared with its optimizers.
  const std::shared_ptr<GradientAccumulator>& accumulator() const { return units_.settings().accumulator; }
  const AxesInForce& axes() const { return axes_; }

  // ---- The parts of a training step, for a caller that runs them in another way (parallel/cuda/graphed_step.hpp).

  std::vector<std::unique_ptr<Chunk<Exec>>>& chunks() { return units_.chunks(); }
  /// The losses of the model and of user-written loops that are not yet checked to be sums.
  LossChecks& loss_checks() { return loss_checks_; }
  const LossAxes& loss_axes() const { return facts_.loss; }
  /// Whether the loss is checked in forwards of the whole model.
  bool has_whole_loss() const { return facts_.one_unit; }
  /// Checks that the loss of a model of one unit is a sum over samples: throws UsageError unless it is. It uses one sequence or
  /// sample, or as many as tp has ranks, which may cut them; it uses more, and those of later micro-batches, if these have no
  /// loss. Nothing is checked if the model refuses so few samples. Collective over all ranks.
  void check_whole_loss(const StepBatch& batch);
  /// The schedule's table for this batch. Throws as train_step does.
  const schedule::Table& table(const StepBatch& batch);
  /// The counts of the global batch. Collective over the axes that cut the batch.
  LossCounts count_targets(const StepBatch& batch) const { return sum_counts(axes_, batch.counts(), batch.has_tokens()); }
  /// An executor of this rank's stages.
  Executor<Exec> executor(StepBatch& batch, const schedule::Table& table, const TrainingInputs& training = {}) {
    return executor(batch, table, training, *accumulator());
  }
  Executor<Exec> executor(StepBatch& batch, const schedule::Table& table, const TrainingInputs& training,
                          GradientAccumulator& accumulator);
  /// Call after all micro-batches. Adds the gradients of shared parameters and completes the sums over data ranks.
  void finish_gradients(AllHooks hooks) { accumulator()->finish(units_.ties().all(), units_.ties().units(), hooks); }
  /// The host's part of complete_step; it does not read the device.
  void agree_on_gradients();
  /// Call when every unit's gradients are ready. Completes their sums, agrees across ranks on the parameters that have one, and
  /// checks them.
  void complete_step(AllHooks hooks) {
    finish_gradients(hooks);
    agree_on_gradients();
  }
  /// Throws UsageError if a training step of this number would lose gradients, or reuse the dropout masks of an earlier step.
  void require_gradients_used(const BatchStep& step) const;
  /// Discards the gradients accumulated so far.
  void discard_gradients() {
    discard_open_step();
    gradients_->discard();
  }
  /// The sum of the losses of all micro-batches of all ranks.
  double total_loss(std::vector<double> losses) const;

  // ---- The parts of a forward without a backward (pipeline/predictions.hpp).

  // A separate forward would gather and release values that the open step holds.
  void require_no_open_step(std::string_view what) const;
  /// The table of a forward. Throws for a batch that the model cannot take.
  schedule::Table forward_table(const StepBatch& batch, BatchUse use = BatchUse::all) const;
  /// Runs the table's forwards up to the model's last unit. On the rank that holds it, calls f(run, layer) for its layer, while
  /// the values of its parameters are gathered; run.last_hidden(micro) is its input.
  template <class F>
  void forward_to_last_unit(StepBatch& batch, const schedule::Table& table, F&& f) {
    Executor<Exec> run = executor(batch, table);
    rehearse_stages(batch, run);
    run.run({.forward_only = true, .stop_before_last = true});
    for (const auto& chunk : chunks())
      if (chunk->last) run.with_unit(chunk->units.back(), [&] { f(run, *chunk->layers.back()); });
  }
  /// In a rehearsal, gives the run the shapes of the messages from other stages.
  void rehearse_stages(const StepBatch& batch, Executor<Exec>& run);
  /// The pipeline rank that holds the model's last unit.
  int last_rank() const;
  static void finish(AllHooks hooks) {
    for (Hooks* one : hooks) one->finish();
  }

 private:
  // Null unless this step's first micro-batch is computed again.
  Recheck* recheck_of(StepBatch& batch) const;
  void discard_open_step() {
    if (std::exchange(gradients_->open, nullptr)) for_each_state([](ParameterState& state) { state.gradients().discard(); });
  }

  AxesInForce axes_;
  StageUnits units_;
  ModelFacts facts_;
  std::shared_ptr<StepGradients> gradients_ = std::make_shared<StepGradients>();
  std::optional<schedule::Table> table_;
  std::unique_ptr<StageShapes> shapes_;  // set in a rehearsal only
  LossChecks loss_checks_;
  std::uint64_t changes_ = 0;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/stages_impl.hpp>
#endif
