// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/stages.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cmath>

#include <weft/comm/reduction_tree.hpp>
#include <weft/core/inline.hpp>
#include <weft/device/region.hpp>
#include <weft/engine/name_pattern.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/learn_shapes.hpp>
#include <weft/pipeline/recheck.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>

namespace weft::detail {

WEFT_INLINE Stages::Stages(AxesInForce axes, StageSettings settings) : axes_(std::move(axes)), units_(std::move(settings)) {}
WEFT_INLINE Stages::~Stages() = default;

WEFT_COLD WEFT_INLINE void Stages::require_blocks(std::size_t blocks) const {
  const std::size_t ranks = axes_.size(pp{}), chunks = std::size_t(schedule().chunks());
  if (units_.settings().layers.empty() && blocks < ranks * chunks)
    throw_error<LayoutError>(
        {"layers(", blocks, ") < pp(", ranks, ") * chunks(", chunks, "): every stage holds at least one layer"});
}

WEFT_COLD WEFT_INLINE void Stages::build(AllHooks hooks, ModelFacts facts, WholeModel<Exec> whole,
                                         const std::function<void(ParameterState&)>& make) {
  facts_ = std::move(facts);
  units_.build(axes_, hooks, facts_, std::move(whole), make);
}

WEFT_INLINE double Stages::train_step(StepBatch& batch) {
  const trace::Region region([&] { return "step " + std::to_string(batch.env().step); });
  const schedule::Table& table = this->table(batch);
  batch.inputs();  // refuses sequences that cp cannot cut
  const AllHooks hooks = batch.engine().hooks;
  require_gradients_used(batch.step());
  const auto [count, tokens] = count_targets(batch);
  discard_open_step();
  gradients_->begin(batch.env().step, batch.step().is_set());
  if (facts_.one_unit) check_whole_loss(batch);
  const double scale = batch.engine().loss_scale;
  const TrainingInputs inputs{.loss_gradient = scale / count, .auxiliary_gradient = scale / tokens};
  Recheck* const recheck = recheck_of(batch);
  if (recheck != nullptr) recheck->before_step(*this, batch, inputs);
  for_each_state([](ParameterState& state) { state.gradients().begin_step(); });
  accumulator()->begin(batch.share(), hooks, axes_.rank(dp{}), axes_.size(dp{}));
  TrainingInputs recorded = inputs;
  recorded.timeline = units_.settings().timeline;
  Executor<Exec> run = executor(batch, table, recorded);
  rehearse_stages(batch, run);
  const bool has_last = std::ranges::any_of(chunks(), [](const auto&chunk) { return chunk->last; }),
             check = !facts_.one_unit && has_last && loss_checks_.due();
  run.run({.check_loss = check ? &loss_checks_ : nullptr,
           .checked = check ? smallest_on_any_rank(axes_, batch.share().micro_batches) : 0});
  complete_step(hooks);
  // Before the ranks' losses are compared: a wrong one is then traced to its rank.
  if (recheck != nullptr) recheck->after_step(*this, batch, inputs, run.losses());
  const double loss = total_loss(run.losses()) / count;
  gradients_->applied = !std::isfinite(loss);  // a step without a finite loss has no gradients to lose
  return loss;
}

WEFT_COLD WEFT_INLINE void require_dense_axes(const AxesInForce& axes, std::size_t degree) {
  if (!axes.has(tp{}))
    throw_error<UsageError>(
        {"numerics.reproducible_degree is ", degree,
         ", and the model's type has no TensorParallel, so its sums have no terms: wrap it, also for one rank"});
  for (const auto& [name, ranks] : {std::pair(ep::name, axes.size(ep{})), std::pair(etp::name, axes.size(etp{}))})
    if (ranks > 1)
      throw_error<LayoutError>({"numerics.reproducible_degree fixes the sums over tp and cp, and not those over ", name, "(",
                                ranks, "): use ", name, " 1, or leave the option out"});
}

WEFT_COLD WEFT_INLINE void Stages::set_everyone(const Communicator& everyone) {
  if (units_.settings().whole_rows && axes_.size(cp{}) > 1)
    throw_error<LayoutError>({"numerics.batch_invariant: a ring over cp(", axes_.size(cp{}),
                              ") adds a token's keys in another order than a decode does; use ContextMethod::ulysses, or cp 1"});
  if (const std::size_t degree = units_.settings().reproducible_degree; degree != 0) require_dense_axes(axes_, degree);
  const auto& recheck = units_.settings().recheck;
  if (!recheck) return;
  if (axes_.size(dp{}) == 1)
    throw_error<LayoutError>(
        {"numerics.recheck_every: another data rank computes a micro-batch again, and dp is 1; use dp of 2 "
         "(3 to decide which rank is wrong), or leave the option out"});
  if (axes_.size(ep{}) > 1)
    throw_error<LayoutError>({"numerics.recheck_every: experts over ep(", axes_.size(ep{}),
                              ") see the tokens of several data ranks at once, which no rank can compute again alone; use ep 1, "
                              "or leave the option out"});
  recheck->over(everyone, axes_.comm(dp{}));
}

WEFT_INLINE Recheck* Stages::recheck_of(StepBatch& batch) const {
  Recheck* const recheck = units_.settings().recheck.get();
  return recheck != nullptr && batch.device().rehearsal() == nullptr && recheck->due(batch.env().step) ? recheck : nullptr;
}

WEFT_INLINE double Stages::evaluate(StepBatch& batch) {
  require_no_open_step("evaluate");
  const schedule::Table table = forward_table(batch);
  batch.check_length();
  batch.inputs();
  const double count = count_targets(batch).counted;
  Executor<Exec> run = executor(batch, table);
  rehearse_stages(batch, run);
  run.run({.forward_only = true});
  finish(batch.engine().hooks);
  return total_loss(run.losses()) / count;
}

WEFT_COLD WEFT_INLINE void Stages::set_trainable(AllHooks hooks, const Communicator& everyone,
                                                 std::span<const std::string_view> patterns, bool trainable) {
  require_matches(everyone, parameter_names(), patterns, trainable ? "unfreeze" : "freeze");
  if (gradients_->pending())
    throw_error<UsageError>({trainable ? "unfreeze" : "freeze",
                             " between train_step and the optimizer's step: the gradients would be lost. Call it after the "
                             "step, or call model.discard_gradients() first"});
  units_.set_trainable(axes_, hooks, patterns, trainable);
  ++changes_;
}

WEFT_COLD WEFT_INLINE void Stages::check_whole_loss(const StepBatch& batch) {
  if (!loss_checks_.due()) return;
  if (facts_.says_sum) return loss_checks_.settle();
  const double tolerance = facts_.scalar_bytes < 4 ? 5e-2 : 1e-3;  // products round by their number of rows
  const schedule::Table table = detail::forward_table(schedule(), 1, 1);
  const bool tokens = batch.has_tokens();
  std::size_t micro = 0;
  const LossOfSamples loss = [&](std::size_t first, std::size_t count, std::size_t times) {
    const std::unique_ptr<StepBatch> few = batch.some_samples(micro, first, count, times);
    Executor<Exec> run = executor(*few, table);
    run.run({.forward_only = true});
    finish(few->engine().hooks);
    return run.losses().front();
  };
  try {
    const std::size_t micro_batches = smallest_on_any_rank(axes_, batch.share().micro_batches);
    for (; micro < micro_batches; ++micro) {
      const MicroBatch size = batch.share().micro_batch(micro);
      const RefuseSum refuse = [&](std::size_t count, double once, double twice) {
        refuse_sum("model", tokens, tokens ? count * size.length : count, once, twice);
      };
      const CheckedSamples some{
          .samples = size.sequences, .unit = axes_.size(tp{}), .rehearsed = batch.device().rehearsal() != nullptr};
      if (check_some_samples(axes_, some, tolerance, loss, refuse)) return loss_checks_.settle();
    }
  } catch (const ShapeError& error) {
    // Pieces of a field may differ between ranks: the others then wait for this one, and few samples are not the reason.
    if (axes_.size(dx{}) * axes_.size(dy{}) * axes_.size(dz{}) > 1)
      throw_error<ShapeError>({std::string_view(error.what()).substr(std::string_view("weft: ").size()),
                               ", in the check that the loss is a sum over samples, with few of them; a model that takes no few "
                               "samples states `static constexpr bool loss_is_a_sum = true`"});
    loss_checks_.settle();
  }
}

WEFT_INLINE const schedule::Table& Stages::table(const StepBatch& batch) {
  batch.check(BatchUse::all);
  batch.check_length();
  const int ranks = int(axes_.size(pp{})), micro = int(batch.share().micro_batches);
  if (!table_ || table_->micro_batches != micro) table_ = schedule().table(ranks, micro);
  return *table_;
}

WEFT_INLINE Executor<Stages::Exec> Stages::executor(StepBatch& batch, const schedule::Table& table,
                                                    const TrainingInputs& training, GradientAccumulator& accumulator) {
  batch.engine().calls = chunks().front()->calls.get();
  return Executor<Exec>(batch.place(axes_.comm(pp{})), chunks(), table, batch.share(), accumulator, training);
}

WEFT_INLINE void renew(const AxesInForce& axes, std::span<const std::shared_ptr<StepBuffer>> buffers) {
  if (buffers.empty()) return;
  std::vector<double> sums;
  for (const auto& buffer : buffers) sums.insert(sums.end(), buffer->sum.begin(), buffer->sum.end());
  axes.for_each([&](const AxesInForce::One& axis) {
    if (axis.id != pp::id && !sums.empty()) axis.ranks.all_reduce(sums);
  });
  std::size_t at = 0;
  for (const auto& buffer : buffers) {
    for (double& sum : buffer->sum) sum = sums[at++];
    buffer->update(*buffer);
    std::fill(buffer->sum.begin(), buffer->sum.end(), 0.0);
  }
}

WEFT_INLINE void Stages::agree_on_gradients() {
  axes_.for_each_data_axis([&](const Communicator& ranks) { agree_on_touched(ranks, *this); });
  renew(axes_, buffers());
  for_each_state([](ParameterState& state) {
    require_reduced(state);
    require_added(state);
  });
}

WEFT_INLINE void Stages::require_gradients_used(const BatchStep& step) const {
  if (gradients_->pending())
    throw_error<UsageError>(
        {"train_step twice without an optimizer's step between them: the gradients of the first would be lost. To accumulate, "
         "give one Batch with more micro_batches; to go on without them, call model.discard_gradients()"});
  gradients_->require_counted(step);
}

WEFT_INLINE double Stages::total_loss(std::vector<double> losses) const {
  losses = accumulator()->loss_terms(std::move(losses), axes_.rank(dp{}), axes_.size(dp{}));
  if (axes_.has(tp{})) axes_.comm(tp{}).check();  // these messages go between devices, so a failure raises no error on the host
  if (axes_.has(pp{})) axes_.comm(pp{}).all_reduce(losses);
  facts_.loss.require_same(losses);
  facts_.loss.all_reduce(losses);
  return tree_sum(losses);
}

WEFT_COLD WEFT_INLINE void Stages::require_no_open_step(std::string_view what) const {
  if (gradients_->open)
    throw_error<UsageError>({what,
                             " between a forward of a custom training loop and the optimizer's step: call it before forward or "
                             "after the step, or model.discard_gradients() first"});
}

WEFT_INLINE schedule::Table Stages::forward_table(const StepBatch& batch, BatchUse use) const {
  batch.check(use);
  return detail::forward_table(schedule(), int(axes_.size(pp{})), int(batch.share().micro_batches));
}

WEFT_INLINE void Stages::rehearse_stages(const StepBatch& batch, Executor<Exec>& run) {
  if (batch.device().rehearsal() == nullptr || axes_.size(pp{}) == 1) return;
  if (!shapes_) shapes_ = std::make_unique<StageShapes>();
  learn_shapes(batch, schedule(), int(axes_.size(pp{})), *accumulator(), units_.stage_of(), *shapes_);
  run.rehearse(*shapes_);
}

WEFT_INLINE int Stages::last_rank() const {
  const int ranks = int(axes_.size(pp{}));
  return schedule().stage_rank(ranks * schedule().chunks() - 1, ranks);
}

}  // namespace weft::detail
