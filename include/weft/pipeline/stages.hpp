// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of a rank on its stages of a model: training steps, evaluation. The innermost object that wrappers wrap.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/comm/reduction_tree.hpp>
#include <weft/context/step_buffers.hpp>
#include <weft/data/batch.hpp>
#include <weft/engine/name_pattern.hpp>
#include <weft/engine/step_gradients.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/learn_shapes.hpp>
#include <weft/pipeline/loss_axes.hpp>
#include <weft/pipeline/loss_count.hpp>
#include <weft/pipeline/model_run.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/stage_units.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>
#include <weft/pipeline/whole_loss_check.hpp>

namespace weft {

namespace detail {

template <class Model>
class Stages {
 public:
  using model_type = Model;
  using Config = typename Model::Config;
  using Batch = batch_of_t<Model>;
  using Exec = DefaultDevice::execution_space;
  static constexpr bool has_tokens = std::is_same_v<Batch, TokenBatch>;

  template <class Context>
  WEFT_COLD Stages(const Context& context, const Config& config, StageSettings settings)
      : units_(std::move(settings)), config_(config) {
    if constexpr (is_usable<Model, Context>() || is_open<Model, Context>) units_.build(context, config);
    else if constexpr (!can_be_built<Model, Context>) refuse_model<Model, Context>();
  }

  /// One step: forward and backward of all micro-batches, gradients summed over every axis. Returns the mean loss in double over
  /// the counted tokens of the global batch, the same on every rank. Each call starts with new gradients; optimizer.step()
  /// applies them. Routers' auxiliary losses contribute to the gradients but not to the returned loss; buffers() holds them
  /// ("load", see Router). Throws UsageError on every rank if no target of the global batch counts.
  template <class Context>
  double train_step(const Context& context, const Batch& whole) {
    if constexpr (is_open<Model, Context>) return refuse_training<Model>(), 0;
    else if constexpr (is_usable<Model, Context>()) return train(context, whole);
    else return 0;
  }

  /// The mean loss of a batch, without dropout and without gradients. Throws UsageError as train_step does.
  template <class Context>
  double evaluate(const Context& context, const Batch& whole) {
    if constexpr (is_open<Model, Context>) return refuse_training<Model>(), 0;
    else if constexpr (is_usable<Model, Context>()) return forward_for_loss(context, whole);
    else return 0;
  }
  /// Every parameter of this rank, once.
  template <class F>
  void for_each_state(F&& f) {
    units_.for_each_state(std::forward<F>(f));
  }

  /// The values other than parameters that this rank's layers keep between steps.
  std::span<const std::shared_ptr<StepBuffer>> buffers() const { return units_.buffers(); }

  /// The names of all parameters of the model, in its order; the same on every rank.
  const std::vector<std::string>& parameter_names() const { return units_.parameters().names(); }
  /// Number of elements of the whole parameter of that name, on any rank; 0 if there is none.
  std::size_t parameter_size(std::string_view name) const { return units_.parameters().size_of(name); }
  /// Makes the parameters that a pattern matches trainable or frozen; see Wrapper::freeze. Collective over `everyone`.
  template <class Context>
  WEFT_COLD void set_trainable(const Context& context, const Communicator& everyone, std::span<const std::string_view> patterns,
                               bool trainable) {
    require_matches(everyone, parameter_names(), patterns, trainable ? "unfreeze" : "freeze");
    if (gradients_->pending())
      throw_error<UsageError>({trainable ? "unfreeze" : "freeze",
                               " between train_step and the optimizer's step: the gradients would be lost. Call it after the "
                               "step, or call model.discard_gradients() first"});
    units_.set_trainable(context, patterns, trainable);
    ++changes_;
  }
  /// True if neither the first nor the last unit uses the parameter: it is neither an embedding nor a head.
  bool inner(const ParameterState& state) const { return units_.inner(state); }
  /// Number of changes to the set of trainable parameters.
  std::uint64_t trainable_changes() const { return changes_; }

  /// Shared with the optimizers of this model.
  const std::shared_ptr<StepGradients>& gradients() const { return gradients_; }

  const Config& config() const { return config_; }
  /// Replaces the texts of the folder that the config was read from. They do not affect results.
  template <class Files>
  void set_files(Files files) {
    config_.files = std::move(files);
  }
  const schedule::AnySchedule& schedule() const { return units_.settings().schedule; }

  /// The accumulator that adds up the gradients of this model; shared with its optimizers.
  const std::shared_ptr<GradientAccumulator>& accumulator() const { return units_.settings().accumulator; }

  // ---- The parts of a training step, for a caller that runs them in another way (parallel/cuda/graphed_step.hpp).

  auto& chunks() { return units_.chunks(); }
  /// The losses of the model and of user-written loops that are not yet checked to be sums.
  LossChecks& loss_checks() { return loss_checks_; }
  /// The schedule's table for this batch. Throws as train_step does.
  template <class Context>
  const schedule::Table& table(const Context& context, const Batch& batch) {
    check(batch);
    check_length(longest_of(batch));
    const int ranks = static_cast<int>(context.size(pp{})), micro = static_cast<int>(share_of(batch).micro_batches);
    if (!table_ || table_->micro_batches != micro) table_ = units_.settings().schedule.table(ranks, micro);
    return *table_;
  }
  template <class Context>
  static LossCounts count_targets(const Context& context, const Batch& batch) {
    return detail::count_targets<Model>(context, batch);
  }
  /// Call after all micro-batches. Adds the gradients of shared parameters and completes the sums over data ranks.
  template <class Context>
  void finish_gradients(const Context& context) {
    units_.settings().accumulator->finish(units_.ties().all(), units_.ties().units(), context.engine.hooks);
  }
  /// Call when every unit's gradients are ready. Completes their sums, agrees across ranks on the parameters that have one, and
  /// checks them.
  template <class Context>
  void complete_step(const Context& context) {
    finish_gradients(context);
    agree_on_gradients(context);
  }
  /// Throws UsageError if a training step on this batch would lose gradients, or reuse the dropout masks of an earlier step, or
  /// if the model can only be evaluated.
  void require_gradients_used(const Batch& batch) const {
    if constexpr (requires { Model::require_trainable(config_); }) Model::require_trainable(config_);
    if (gradients_->pending())
      throw_error<UsageError>(
          {"train_step twice without an optimizer's step between them: the gradients of the first would be lost. To accumulate, "
           "give one Batch with more micro_batches; to go on without them, call model.discard_gradients()"});
    gradients_->require_counted(batch.step);
  }
  /// The host's part of complete_step; it does not read the device.
  template <class Context>
  void agree_on_gradients(const Context& context) {
    for_each_data_axis(context, [&](const Communicator& ranks) { detail::agree_on_touched(ranks, *this); });
    detail::renew(context, units_.buffers());
    for_each_state([](ParameterState& state) {
      require_reduced(state);
      require_added(state);
    });
  }
  /// Discards the gradients accumulated so far.
  void discard_gradients() {
    discard_open_step();
    gradients_->discard();
  }
  /// The sum of the losses of all micro-batches of all ranks.
  template <class Context>
  double total_loss(const Context& context, std::vector<double> losses) const {
    losses = units_.settings().accumulator->loss_terms(std::move(losses), context.rank(dp{}), context.size(dp{}));
    if constexpr (Context::has(tp{}))
      context.comm(tp{}).check();  // these messages go between devices, so a failure raises no error on the host
    if constexpr (Context::has(pp{})) context.comm(pp{}).all_reduce(losses);
    LossAxes<typename ModelTypes<Model, Context>::Loss>::require_same(context, losses);
    LossAxes<typename ModelTypes<Model, Context>::Loss>::all_reduce(context, losses);
    return tree_sum(losses);
  }

  // ---- The parts of a forward without a backward (pipeline/predictions.hpp).

  // A separate forward would gather and release values that the open step holds.
  WEFT_COLD void require_no_open_step(std::string_view what) const {
    if (gradients_->open)
      throw_error<UsageError>({what,
                               " between a forward of a custom training loop and the optimizer's step: call it before forward or "
                               "after the step, or model.discard_gradients() first"});
  }
  void check(const Batch& batch, BatchUse use = BatchUse::all) const {
    if constexpr (has_tokens && requires { Model::vocabulary(config_); }) batch.check(Model::vocabulary(config_), use);
    else batch.check(use);
    check_batch_of<Model>(config_, batch);
  }
  // Longer sequences have no valid positions, whether the model has a position table or computes positions.
  void check_length([[maybe_unused]] std::size_t length) const {
    if constexpr (requires { Model::sequence(config_); })
      if (length > Model::sequence(config_))
        throw_error<ShapeError>({"a sequence of ", length, " tokens, but the model was made for at most ",
                                 Model::sequence(config_), " (sequence in its config)"});
  }
  template <class Context>
  schedule::Table forward_table(const Context& context, const Batch& batch, BatchUse use = BatchUse::all) const {
    check(batch, use);
    return detail::forward_table(units_.settings().schedule, int(context.size(pp{})), int(share_of(batch).micro_batches));
  }
  template <class Context>
  static decltype(auto) part_of(const Context& context, const Batch& batch) {
    if constexpr (Context::has(cp{}) && has_tokens) return cut_over_cp(context, batch);
    else return (batch);
  }
  /// In a rehearsal, gives the run the shapes of the messages from other stages.
  template <class Context>
  void rehearse_stages([[maybe_unused]] const Context& context, [[maybe_unused]] const Batch& part,
                       [[maybe_unused]] ModelRun<Model, Context>& run) {
    if constexpr (Context::has(pp{})) {
      if (context.device().rehearsal() == nullptr || context.size(pp{}) == 1) return;
      if (!shapes_) shapes_ = std::make_unique<StageShapes>();
      learn_shapes<Model>(context, config_, part, units_.settings().schedule, *units_.settings().accumulator, units_.stage_of(),
                          *shapes_);
      run.executor.rehearse(*shapes_);
    }
  }
  template <class Context>
  static void finish(const Context& context) {
    for (Hooks* hooks : context.engine.hooks) hooks->finish();
  }

 private:
  void discard_open_step() {
    if (std::exchange(gradients_->open, nullptr)) for_each_state([](ParameterState& state) { state.gradients().discard(); });
  }
  template <class Context>
  double train(const Context& context, const Batch& whole) {
    const trace::Region region([&] { return "step " + std::to_string(context.env.step); });
    const schedule::Table& table = this->table(context, whole);
    const auto& batch = part_of(context, whole);
    require_gradients_used(whole);
    const auto [count, tokens] = count_targets(context, whole);
    discard_open_step();
    gradients_->begin(context.env.step, whole.step.is_set());
    if constexpr (has_whole_loss<Model, Context>)
      if (loss_checks_.due() && require_whole_loss_is_a_sum(*this, context, whole)) loss_checks_.settle();
    for_each_state([](ParameterState& state) { state.gradients().begin_step(); });
    units_.settings().accumulator->begin(share_of(whole), context.engine.hooks, context.rank(dp{}), context.size(dp{}));
    ModelRun<Model, Context> run(context, units_.chunks(), table, batch, *units_.settings().accumulator,
                                 {.loss_gradient = context.engine.loss_scale / count,
                                  .auxiliary_gradient = context.engine.loss_scale / tokens,
                                  .timeline = units_.settings().timeline});
    rehearse_stages(context, batch, run);
    const bool has_last = std::ranges::any_of(units_.chunks(), [](const auto&chunk) { return chunk->last; }),
               check = !has_whole_loss<Model, Context> && has_last && loss_checks_.due();
    run.executor.run({.check_loss = check ? &loss_checks_ : nullptr,
                      .checked = check ? smallest_on_any_rank(context, share_of(whole).micro_batches) : 0});
    complete_step(context);
    const double loss = total_loss<Context>(context, run.executor.losses()) / count;
    gradients_->applied = !std::isfinite(loss);  // a step without a finite loss has no gradients to lose
    return loss;
  }

  template <class Context>
  double forward_for_loss(const Context& context, const Batch& whole) {
    require_no_open_step("evaluate");
    const schedule::Table table = forward_table(context, whole);
    check_length(longest_of(whole));
    const auto& batch = part_of(context, whole);
    const double count = count_targets(context, whole).counted;
    ModelRun<Model, Context> run(context, units_.chunks(), table, batch, *units_.settings().accumulator);
    rehearse_stages(context, batch, run);
    run.executor.run({.forward_only = true});
    finish(context);
    return total_loss<Context>(context, run.executor.losses()) / count;
  }

  StageUnits<Model> units_;
  Config config_;
  std::shared_ptr<StepGradients> gradients_ = std::make_shared<StepGradients>();
  std::optional<schedule::Table> table_;
  std::unique_ptr<StageShapes> shapes_;  // set in a rehearsal only
  LossChecks loss_checks_;
  std::uint64_t changes_ = 0;
};

}  // namespace detail

}  // namespace weft
