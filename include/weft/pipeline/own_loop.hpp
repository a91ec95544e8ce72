// SPDX-License-Identifier: Apache-2.0
#pragma once
// Steps of user-written training loops: the first forward after an optimizer's step begins a step, and the next optimizer's step
// completes it. In between, backward adds gradients on this rank (FullyShardedDataParallel also reduces them). The sums over
// ranks are completed once per step, as in train_step.
//
//   auto call = forward_call(stages, context, batch);

#include <cstddef>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include <weft/pipeline/batch_inputs.hpp>
#include <weft/pipeline/model_batch.hpp>
#include <weft/pipeline/model_call.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/pipeline/typed_unit.hpp>
#include <weft/pipeline/unit_calls.hpp>

namespace weft {

/// The index of one of a batch's micro-batches in a user-written loop: model.forward(batch, MicroBatchIndex{1}).
struct MicroBatchIndex {
  std::size_t index = 0;
};

namespace detail {

/// Stands for the whole batch, which must consist of one micro-batch.
inline constexpr MicroBatchIndex whole_batch{std::numeric_limits<std::size_t>::max()};

/// The micro-batch that a call selects. Throws UsageError if the batch has several and none is selected, or if the index is out
/// of range.
std::size_t micro_of(const BatchShare& batch, MicroBatchIndex micro);

/// Prepares a call's copy of a context for one micro-batch's samples.
void enter_call(DefaultDevice& device, Environment& env, EngineState& engine, const BatchShare& share, std::size_t micro);
/// The same within a step, which begins unless one is open, with the factors that scale layers' auxiliary losses. `share`: of
/// `batch`. Dropout is drawn for the batch's step number if it has one, else for the step's number, incremented for each further
/// call on the same micro-batch.
void enter_call_in_step(Stages& stages, DefaultDevice& device, Environment& env, EngineState& engine, const BatchShare& share,
                        const BatchStep& step, std::size_t micro, const LossCounts& counts);
inline void enter_call_in_step(Stages& stages, StepBatch& batch, std::size_t micro, const LossCounts& counts) {
  enter_call_in_step(stages, batch.device(), batch.env(), batch.engine(), batch.share(), batch.step(), micro, counts);
}
/// Opens a call that runs the units of a model of several, for a forward or for its loss.
std::unique_ptr<OpenCall> open_forward(Stages& stages, std::unique_ptr<StepBatch> batch, BatchUse use, MicroBatchIndex which);
ModelLossCall open_loss(Stages& stages, std::unique_ptr<StepBatch> batch, MicroBatchIndex which);

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

template <class S, class Context, class B, class... X>
auto forward_call(S& stages, const Context& context, const B& given, MicroBatchIndex which, const X&... x) {
  using Model = typename S::model_type;
  require_inputs_of_batch<Model, sizeof...(X)>();
  if constexpr (ModuleModel<Model>) {
    const std::size_t micro = micro_of(share_of(given), which);
    const LossCounts counts = sum_counts(stages.axes(), counts_of<Model>(given), S::has_tokens);
    using Step = step_context_t<Context>;
    Step own = step_context(context);
    enter_call_in_step(stages, own.device(), own.env, own.engine, share_of(given), given.step, micro, counts);
    const CallPlace place{stages.chunks().front().get(), stages.accumulator().get(), micro};
    Model& layer = module_of<Model, Context>(*place.chunk->layers.front());
    if constexpr (sizeof...(X) > 0) {
      const auto input = as_one_input(x...);
      return ModelCall<Model, Step, std::remove_const_t<decltype(input)>>(own, place, layer, input);
    } else {
      inputs_of_t<Model, Context> inputs(own, given);
      const auto input = first_fields<Model, Step>(inputs.first(micro));
      return ModelCall<Model, Step, std::remove_const_t<decltype(input)>>(own, place, layer, input);
    }
  } else if constexpr (is_usable<Model, Context>()) {
    auto batch = std::make_unique<ModelBatch<Model, Context>>(context, stages.config(), given);
    return StackCall<Model, step_context_t<Context>>(open_forward(stages, std::move(batch), use_of_forward<B>, which));
  }
}

template <class S, class Context, class B>
auto model_loss_call(S& stages, const Context& context, const B& given, MicroBatchIndex which) {
  using Model = typename S::model_type;
  if constexpr (is_open<Model, Context>) {
    refuse_training<Model>();
  } else if constexpr (is_usable<Model, Context>()) {
    return open_loss(stages, std::make_unique<ModelBatch<Model, Context>>(context, stages.config(), given), which);
  }
}

template <class S, class Context, class B, class F, class... X>
auto loss_call(S& stages, const Context& context, const B& batch, MicroBatchIndex which, F f, const X&... x) {
  const BatchShare share = share_of(batch);
  const std::size_t micro = micro_of(share, which);
  step_context_t<Context> own = step_context(context);
  enter_call(own.device(), own.env, own.engine, share, micro);
  own.env.step = stages.gradients()->number_of(batch.step);
  if (stages.gradients()->open) stages.gradients()->open->has_loss = true;
  const auto input = as_one_input(x...);
  const double count = sum_counts(stages.axes(), counts_of<typename S::model_type>(batch), S::has_tokens).counted;
  using Call = LossCall<F, step_context_t<Context>, std::remove_const_t<decltype(input)>>;
  return Call(own, std::move(f), count, input, share.micro_batch(micro).sequences, stages.loss_checks());
}

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/pipeline/own_loop_impl.hpp>
#endif
