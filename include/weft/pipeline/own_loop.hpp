// SPDX-License-Identifier: Apache-2.0
#pragma once
// Steps of user-written training loops: the first forward after an optimizer's step begins a step, and the next optimizer's step
// completes it. In between, backward adds gradients on this rank (FullyShardedDataParallel also reduces them). The sums over
// ranks are completed once per step, as in train_step.
//
//   auto call = forward_call(stages, context, batch);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/pipeline/batch_inputs.hpp>
#include <weft/pipeline/model_call.hpp>
#include <weft/pipeline/stages.hpp>

namespace weft {

/// The index of one of a batch's micro-batches in a user-written loop: model.forward(batch, MicroBatchIndex{1}).
struct MicroBatchIndex {
  std::size_t index = 0;
};

namespace detail {

/// Stands for the whole batch, which must consist of one micro-batch.
inline constexpr MicroBatchIndex whole_batch{std::numeric_limits<std::size_t>::max()};

/// Completes a step: marks every unit's gradients ready, in the order of train_step.
template <class Stages, class Context>
class OpenLoopStep final : public OpenStep {
 public:
  OpenLoopStep(Stages& stages, const Context& context) : stages_(&stages), context_(context) {}
  /// Records a call on this micro-batch. Returns the number of earlier calls on it in this step.
  std::uint64_t note(std::size_t micro) { return calls_[micro]++; }
  void complete() override {
    if (context_.engine.loss_scale != 1 && !has_loss)
      throw_error<UsageError>({"a step of a custom training loop with a loss scale of ",
                               std::to_string(context_.engine.loss_scale),
                               " and without a loss of this model: its gradients would be divided by a factor that nothing "
                               "multiplied. Begin with model.loss of the model whose optimizer steps, or call "
                               "model.discard_gradients()"});
    close();
    for (const auto& chunk : stages_->chunks())
      if (chunk->calls && chunk->calls->splits()) chunk->calls->ready(*stages_->accumulator(), context_.engine.hooks, true);
      else
        for (std::size_t unit = chunk->trained.size(); unit-- > 0;)
          stages_->accumulator()->ready(chunk->trained[unit], context_.engine.hooks, true);
    stages_->complete_step(context_);
  }

 private:
  // Several calls may have added gradients for one micro-batch, so its terms are closed only here.
  void close() {
    GradientAccumulator& accumulator = *stages_->accumulator();
    if (!accumulator.separates_terms()) return;
    for (const auto& chunk : stages_->chunks())
      for (std::size_t unit = chunk->units.size(); unit-- > 0;)
        for (const auto& [micro, calls] : calls_) {
          accumulator.open(chunk->units[unit], micro);
          accumulator.close(chunk->units[unit], micro, context_.engine.hooks);
        }
  }
  Stages* stages_;
  Context context_;
  std::map<std::size_t, std::uint64_t> calls_;  // number of calls by micro-batch
};

/// Begins a step unless one is open; `micro` is the micro-batch of the call. Returns the number that seeds the call's dropout:
/// the batch's step number if it has one, else the step's number, incremented for each further call on the same micro-batch.
template <class Stages, class Context>
std::uint64_t open_step(Stages& stages, const Context& context, const BatchShare& share, const BatchStep& step,
                        std::size_t micro) {
  StepGradients& gradients = *stages.gradients();
  Rehearsal* const notes = context.device().rehearsal();
  if (notes != nullptr) [[unlikely]] {
    const void* const model = stages.accumulator().get();
    const std::size_t rows = share.rows_before(micro + 1) - share.rows_before(micro);
    notes->before_run(context.device().arena().use());
    if (gradients.open) notes->entered(model, rows);
    else notes->before_step(model, rows);
  }
  if (!gradients.open) {
    if (gradients.pending())
      throw_error<UsageError>(
          {"forward of a custom training loop after a train_step without an optimizer's step between them: the gradients of "
           "train_step would be lost; call the optimizer's step, or model.discard_gradients()"});
    stages.for_each_state([](ParameterState& state) { state.gradients().begin_step(); });
    stages.accumulator()->begin(share, context.engine.hooks, context.rank(dp{}), context.size(dp{}));
    for (Hooks* hooks : context.engine.hooks) hooks->begin(true);
    for (const auto& chunk : stages.chunks())
      if (chunk->calls) chunk->calls->begin_step();
    gradients.begin(context.env.step, step.is_set());
    gradients.open = std::make_unique<OpenLoopStep<Stages, Context>>(stages, context);
    gradients.open->number = context.env.step;
    gradients.micro_batches = share.micro_batches;
    gradients.applied = false;
  } else if (gradients.micro_batches != share.micro_batches && stages.accumulator()->separates_terms()) {
    throw_error<UsageError>({"a reproducible step of a custom training loop began with a batch of ", gradients.micro_batches,
                             " micro-batches and goes on with one of ", share.micro_batches,
                             ": the order of its sums goes by the micro-batches of one batch; call the parts of that batch, "
                             "model.forward(batch, MicroBatchIndex{i})"});
  }
  const std::uint64_t before = static_cast<OpenLoopStep<Stages, Context>&>(*gradients.open).note(micro),
                      number = step.is_set() ? std::uint64_t(step) : gradients.open->number + before;
  gradients.draw(number, step.is_set());
  return number;
}

/// The micro-batch that a call selects. Throws UsageError if the batch has several and none is selected, or if the index is out
/// of range.
template <class B>
std::size_t micro_of(const B& batch, MicroBatchIndex micro) {
  const std::size_t count = share_of(batch).micro_batches;
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

/// The context of one call on one micro-batch's samples.
template <class Context>
Context context_of_call(const Context& context, const BatchShare& share, std::size_t micro = 0) {
  Context own = context;
  const MicroBatch size = share.micro_batch(micro);
  own.env.first_row = (share.first + share.samples_before(micro)) * std::max(share.length, context.engine.longest);
  static_cast<Environment&>(own.env).length = size.length;
  own.env.rows = size.sequences * size.length;
  if (!share.documents.empty()) {
    const std::size_t first = share.rows_before(micro);
    const Tensor<std::int32_t, typename Context::execution_space> documents(own.device(), {own.env.rows});
    detail::send_from_host(documents, share.documents.subspan(first, own.env.rows));
    own.env.documents = {documents.buffer(), static_cast<const std::int32_t*>(documents.data())};
  }
  own.env.training = true;
  own.engine.running = true;
  own.engine.records = true;
  return own;
}
/// The same within a step, with the factors that scale layers' auxiliary losses.
template <class Stages, class Context, class B>
Context context_in_step(Stages& stages, const Context& context, const B& batch, std::size_t micro, const LossCounts& counts) {
  const BatchShare share = share_of(batch);
  const std::uint64_t number = open_step(stages, context, share, batch.step, micro);
  Context own = context_of_call(context, share, micro);
  own.env.step = number;
  own.engine.calls = stages.chunks().front()->calls.get();
  own.env.separates_terms = stages.accumulator()->separates_terms();
  own.env.loss_gradient = context.engine.loss_scale / counts.counted;
  own.env.auxiliary_gradient = context.engine.loss_scale / counts.tokens;
  return own;
}

/// The Module of a model that consists of one Module.
template <class Context, class Stages>
auto& module_of(Stages& stages) {
  using Model = typename Stages::model_type;
  auto& unit = *stages.chunks().front()->layers.front();
  if constexpr (LossModule<Model>)
    return static_cast<StackUnitOf<typename ModelTypes<Model, Context>::Last, Context>&>(unit).layer.model;
  else return static_cast<HeldUnit<Model, typename Context::execution_space>&>(unit).layer;
}

/// The first fields of a batch as one input, as many as the Module's forward takes.
template <class M, class Context, std::size_t n = 1, class Fields>
auto first_fields(const Fields& fields) {
  constexpr bool fits = [&]<std::size_t... I>(std::index_sequence<I...>) {
    return ForwardsVariables<M, Variable<Context, typename Fields::template tensor_t<I>>...>;
  }
  (std::make_index_sequence<n>());
  if constexpr (fits) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return as_one_input(fields.template at<I>()...); }
    (std::make_index_sequence<n>());
  } else {
    static_assert(
        n < Fields::count,
        "weft: this model's forward cannot be called with the first fields of its batch: its arguments are the first of "
        "Batch's fields, in their order; or name them: model.forward(batch, inputs[image]); see M in this function's "
        "template arguments");
    if constexpr (n < Fields::count) return first_fields<M, Context, n + 1>(fields);
    else return fields.template at<0>();
  }
}

/// The fields that a forward requires. A loss over tokens is divided by the number of targets, so a TokenBatch must have them.
template <class B>
inline constexpr BatchUse use_of_forward = std::is_same_v<B, TokenBatch> ? BatchUse::all : BatchUse::inputs;

/// A model of several units takes only a batch; its first unit reads the inputs.
template <class Model, std::size_t given>
constexpr void require_inputs_of_batch() {
  static_assert(ModuleModel<Model> || given == 0,
                "weft: model.forward(batch, tensors...) is for a model that is one Module, whose forward takes them; the first "
                "unit of other models takes the batch: model.forward(batch)");
}

/// Opens a call that runs the model's units in a separate context.
template <class Stages, class Context, class B>
auto open_call(Stages& stages, Context own, const B& batch, std::size_t micro) {
  return std::make_unique<OpenCall<Context>>(std::move(own), *stages.chunks().front(), *stages.accumulator(), micro,
                                             share_of(batch).micro_batch(micro).sequences);
}

template <class Stages, class Context, class B, class... X>
auto forward_call(Stages& stages, const Context& context, const B& batch, MicroBatchIndex which, const X&... x) {
  using Model = typename Stages::model_type;
  require_inputs_of_batch<Model, sizeof...(X)>();
  const std::size_t micro = micro_of(batch, which);
  if constexpr (ModuleModel<Model>) {
    const Context own = context_in_step(stages, context, batch, micro, stages.count_targets(context, batch));
    auto& chunk = *stages.chunks().front();
    const CallPlace place{&chunk.units.front(), &chunk.trained.front(), stages.accumulator().get(), micro};
    Model& layer = module_of<Context>(stages);
    if constexpr (sizeof...(X) > 0) {
      const auto input = as_one_input(x...);
      return ModelCall<Model, Context, std::remove_const_t<decltype(input)>>(own, place, layer, input);
    } else {
      inputs_of_t<Model, Context> inputs(own, batch);
      const auto input = first_fields<Model, Context>(inputs.first(micro));
      return ModelCall<Model, Context, std::remove_const_t<decltype(input)>>(own, place, layer, input);
    }
  } else if constexpr (is_usable<Model, Context>()) {
    stages.check(batch, use_of_forward<B>);
    stages.check_length(longest_of(batch));
    const auto& part = stages.part_of(context, batch);
    const inputs_of_t<Model, Context> inputs(context, part);
    auto open =
        open_call(stages, context_in_step(stages, context, batch, micro, stages.count_targets(context, batch)), batch, micro);
    open->run.take(inputs);
    return StackCall<Model, Context>(std::move(open), inputs);
  }
}

/// A call of the model's loss.
template <class Stages, class Context, class B>
auto model_loss_call(Stages& stages, const Context& context, const B& batch, MicroBatchIndex which) {
  using Model = typename Stages::model_type;
  if constexpr (is_open<Model, Context>) {
    refuse_training<Model>();
  } else if constexpr (is_usable<Model, Context>()) {
    const std::size_t micro = micro_of(batch, which);
    stages.check(batch);
    stages.check_length(longest_of(batch));
    const auto& part = stages.part_of(context, batch);
    const inputs_of_t<Model, Context> inputs(context, part);
    const LossCounts counts = stages.count_targets(context, batch);
    LossChecks& checks = stages.loss_checks();
    if constexpr (has_whole_loss<Model, Context>)
      if (!stages.gradients()->open && checks.due() && require_whole_loss_is_a_sum(stages, context, batch)) checks.settle();
    auto open = open_call(stages, context_in_step(stages, context, batch, micro, counts), batch, micro);
    open->run.take(inputs);
    stages.gradients()->open->has_loss = true;
    return ModelLossCall<Model, Context>(std::move(open), counts.counted, has_whole_loss<Model, Context> ? nullptr : &checks);
  }
}

template <class Stages, class Context, class B, class F, class... X>
auto loss_call(Stages& stages, const Context& context, const B& batch, MicroBatchIndex which, F f, const X&... x) {
  Context own = context_of_call(context, share_of(batch), micro_of(batch, which));
  own.env.step = stages.gradients()->number_of(batch.step);
  if (stages.gradients()->open) stages.gradients()->open->has_loss = true;
  const auto input = as_one_input(x...);
  const double count = stages.count_targets(context, batch).counted;
  using Call = LossCall<F, Context, std::remove_const_t<decltype(input)>>;
  return Call(own, std::move(f), count, input, share_of(batch).micro_batch(micro_of(batch, which)).sequences,
              stages.loss_checks());
}

}  // namespace detail

}  // namespace weft
