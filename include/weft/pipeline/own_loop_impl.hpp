// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/own_loop.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <weft/core/inline.hpp>
#include <weft/pipeline/own_loop.hpp>

namespace weft::detail {

// Completes a step: marks every unit's gradients ready, in the order of train_step.
class OpenLoopStep final : public OpenStep {
 public:
  OpenLoopStep(Stages& stages, const EngineState& engine) : stages_(&stages), engine_(engine) {}
  // Records a call on this micro-batch. Returns the number of earlier calls on it in this step.
  std::uint64_t note(std::size_t micro) { return calls_[micro]++; }
  WEFT_INLINE void complete() override;

 private:
  WEFT_INLINE void close();

  Stages* stages_;
  EngineState engine_;
  std::map<std::size_t, std::uint64_t> calls_;  // number of calls by micro-batch
};

WEFT_INLINE void OpenLoopStep::complete() {
  if (engine_.loss_scale != 1 && !has_loss)
    throw_error<UsageError>({"a step of a custom training loop with a loss scale of ", std::to_string(engine_.loss_scale),
                             " and without a loss of this model: its gradients would be divided by a factor that nothing "
                             "multiplied. Begin with model.loss of the model whose optimizer steps, or call "
                             "model.discard_gradients()"});
  close();
  for (const auto& chunk : stages_->chunks())
    for (std::size_t unit = chunk->layers.size(); unit-- > 0;) chunk->ready(unit, *stages_->accumulator(), engine_.hooks, true);
  stages_->complete_step(engine_.hooks);
}

// Several calls may have added gradients for one micro-batch, so its terms are closed only here.
WEFT_INLINE void OpenLoopStep::close() {
  GradientAccumulator& accumulator = *stages_->accumulator();
  if (!accumulator.separates_terms()) return;
  for (const auto& chunk : stages_->chunks())
    for (std::size_t unit = chunk->units.size(); unit-- > 0;)
      for (const auto& [micro, calls] : calls_) {
        accumulator.open(chunk->units[unit], micro);
        accumulator.close(chunk->units[unit], micro, engine_.hooks);
      }
}

WEFT_INLINE std::size_t micro_of(const BatchShare& batch, MicroBatchIndex micro) {
  const std::size_t count = batch.micro_batches;
  if (micro.index == whole_batch.index) {
    if (count != 1)
      throw_error<UsageError>(
          {"model.forward of a batch of ", count,
           " micro-batches: a call takes one of them, model.forward(batch, MicroBatchIndex{0}) and so on, and their gradients "
           "add up until the optimizer's step; or set micro_batches to 1"});
    return 0;
  }
  if (micro.index >= count)
    throw_error<UsageError>({"MicroBatchIndex{", micro.index, "} of a batch of ", count, " micro-batches: they count from 0"});
  return micro.index;
}

// Begins a step unless one is open. Returns the number that seeds the call's dropout.
WEFT_INLINE std::uint64_t open_step(Stages& stages, DefaultDevice& device, const EngineState& engine, std::uint64_t next,
                                    const BatchShare& share, const BatchStep& step, std::size_t micro) {
  StepGradients& gradients = *stages.gradients();
  GradientAccumulator& accumulator = *stages.accumulator();
  Rehearsal* const notes = device.rehearsal();
  if (notes != nullptr) [[unlikely]] {
    const std::size_t rows = share.rows_before(micro + 1) - share.rows_before(micro);
    notes->before_run(device.arena().use());
    if (gradients.open) notes->entered(&accumulator, rows);
    else notes->before_step(&accumulator, rows);
  }
  if (!gradients.open) {
    if (gradients.pending())
      throw_error<UsageError>(
          {"forward of a custom training loop after a train_step without an optimizer's step between them: the gradients of "
           "train_step would be lost; call the optimizer's step, or model.discard_gradients()"});
    stages.for_each_state([](ParameterState& state) { state.gradients().begin_step(); });
    accumulator.begin(share, engine.hooks, stages.axes().rank(dp{}), stages.axes().size(dp{}));
    for (Hooks* hooks : engine.hooks) hooks->begin(true);
    for (const auto& chunk : stages.chunks())
      if (chunk->calls) chunk->calls->begin_step();
    gradients.begin(next, step.is_set());
    gradients.open = std::make_unique<OpenLoopStep>(stages, engine);
    gradients.open->number = next;
    gradients.micro_batches = share.micro_batches;
    gradients.applied = false;
  } else if (gradients.micro_batches != share.micro_batches && accumulator.separates_terms()) {
    throw_error<UsageError>({"a reproducible step of a custom training loop began with a batch of ", gradients.micro_batches,
                             " micro-batches and goes on with one of ", share.micro_batches,
                             ": the order of its sums goes by the micro-batches of one batch; call the parts of that batch, "
                             "model.forward(batch, MicroBatchIndex{i})"});
  }
  const std::uint64_t before = static_cast<OpenLoopStep&>(*gradients.open).note(micro),
                      number = step.is_set() ? std::uint64_t(step) : gradients.open->number + before;
  gradients.draw(number, step.is_set());
  return number;
}

WEFT_INLINE void enter_call(DefaultDevice& device, Environment& env, EngineState& engine, const BatchShare& share,
                            std::size_t micro) {
  const MicroBatch size = share.micro_batch(micro);
  env.first_row = (share.first + share.samples_before(micro)) * std::max(share.length, engine.longest);
  env.length = size.length;
  env.rows = size.sequences * size.length;
  if (!share.documents.empty()) {
    const Tensor<std::int32_t, StepBatch::Exec> documents(device, {env.rows});
    send_from_host(documents, share.documents.subspan(share.rows_before(micro), env.rows));
    env.documents = {documents.buffer(), static_cast<const std::int32_t*>(documents.data())};
  }
  env.training = true;
  engine.records = true;
}

WEFT_INLINE void enter_call_in_step(Stages& stages, DefaultDevice& device, Environment& env, EngineState& engine,
                                    const BatchShare& share, const BatchStep& step, std::size_t micro, const LossCounts& counts) {
  const std::uint64_t number = open_step(stages, device, engine, env.step, share, step, micro);
  enter_call(device, env, engine, share, micro);
  env.step = number;
  engine.calls = stages.chunks().front()->calls.get();
  env.separates_terms = stages.accumulator()->separates_terms();
  env.loss_gradient = engine.loss_scale / counts.counted;
  env.auxiliary_gradient = engine.loss_scale / counts.tokens;
}

WEFT_INLINE std::unique_ptr<OpenCall> open_forward(Stages& stages, std::unique_ptr<StepBatch> batch, BatchUse use,
                                                   MicroBatchIndex which) {
  const std::size_t micro = micro_of(batch->share(), which);
  batch->check(use);
  batch->check_length();
  batch->inputs();
  enter_call_in_step(stages, *batch, micro, stages.count_targets(*batch));
  return std::make_unique<OpenCall>(std::move(batch), *stages.chunks().front(), *stages.accumulator(), micro);
}

WEFT_INLINE ModelLossCall open_loss(Stages& stages, std::unique_ptr<StepBatch> batch, MicroBatchIndex which) {
  const std::size_t micro = micro_of(batch->share(), which);
  batch->check(BatchUse::all);
  batch->check_length();
  batch->inputs();
  const LossCounts counts = stages.count_targets(*batch);
  if (stages.has_whole_loss() && !stages.gradients()->open) stages.check_whole_loss(*batch);
  enter_call_in_step(stages, *batch, micro, counts);
  auto open = std::make_unique<OpenCall>(std::move(batch), *stages.chunks().front(), *stages.accumulator(), micro);
  stages.gradients()->open->has_loss = true;
  return ModelLossCall(std::move(open), stages.loss_axes(), counts.counted,
                       stages.has_whole_loss() ? nullptr : &stages.loss_checks());
}

}  // namespace weft::detail
