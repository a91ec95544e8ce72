// SPDX-License-Identifier: Apache-2.0
#pragma once
// Steps of loops of one's own: the first forward after an optimizer's step begins one, and the optimizer's step completes it. In
// between, backward adds gradients on this rank (FullyShardedDataParallel also reduces them); the sums over ranks are completed
// once, as those of train_step are.
//
//   auto call = forward_call(stages, context, batch);

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/core/text.hpp>
#include <weft/layer/batch_inputs.hpp>
#include <weft/pipeline/model_call.hpp>
#include <weft/pipeline/stages.hpp>

namespace weft::detail {

/// Completes a step: every unit's gradients are ready, in the order in which those of train_step would be.
template <class Stages, class Context>
class OpenLoopStep final : public OpenStep {
 public:
  OpenLoopStep(Stages& stages, const Context& context) : stages_(&stages), context_(context) {}
  void complete() override {
    for (const auto& chunk : stages_->chunks())
      for (std::size_t unit = chunk->trained.size(); unit-- > 0;)
        stages_->accumulator()->ready(chunk->trained[unit], context_.engine.hooks, true);
    stages_->complete_step(context_);
  }

 private:
  Stages* stages_;
  Context context_;
};

template <class Stages, class Context>
void open_step(Stages& stages, const Context& context, const BatchShare& share) {
  StepGradients& gradients = *stages.gradients();
  if (gradients.open) return;
  if (stages.gradients().use_count() > 1 && !gradients.applied)
    throw_error<UsageError>(
        {"forward of a loop of one's own after a train_step without an optimizer's step between them: the gradients of "
         "train_step "
         "would be lost; call the optimizer's step, or model.discard_gradients()"});
  if (stages.accumulator()->separates_terms())
    throw_error<UsageError>(
        {"loops of one's own (model.forward) in a reproducible run (ModelOptions::numerics.reproducible): the order of its sums "
         "goes "
         "by the micro-batches of train_step; leave reproducible out, or use train_step"});
  if (context.engine.loss_scale != 1)
    throw_error<UsageError>({"loops of one's own (model.forward) with a loss scale of ",
                             std::to_string(context.engine.loss_scale),
                             ": the gradients that the program hands from call to call would be scaled several times; train in "
                             "bfloat16 or float, or use "
                             "train_step"});
  stages.for_each_state([](ParameterState& state) { state.gradients().begin_step(); });
  stages.accumulator()->begin(share, context.engine.hooks, context.rank(dp{}), context.size(dp{}));
  for (Hooks* hooks : context.engine.hooks) hooks->begin(true);
  gradients.open = std::make_unique<OpenLoopStep<Stages, Context>>(stages, context);
  gradients.applied = false;
}

/// The context of one call on these samples.
template <class Context>
Context context_of_call(const Context& context, const BatchShare& share) {
  if (share.micro_batches != 1)
    throw_error<UsageError>(
        {"model.forward of a batch of ", share.micro_batches,
         " micro-batches: a loop of one's own takes the whole share at once; set micro_batches to 1, and call "
         "forward and backward for each part that should be alone"});
  Context own = context;
  own.env.step = share.step;
  own.env.first_row = share.first * share.length;
  static_cast<Environment&>(own.env).length = share.length;
  own.env.rows = share.samples * share.length;
  if (!share.documents.empty()) {
    const Tensor<std::int32_t, typename Context::execution_space> documents(own.device(), {share.documents.size()});
    copy_from_host(documents, share.documents);
    own.env.documents = {documents.buffer(), static_cast<const std::int32_t*>(documents.data())};
  }
  own.env.training = true;
  own.engine.running = true;
  own.engine.records = true;
  return own;
}

/// The Module of a model that is one.
template <class Context, class Stages>
auto& module_of(Stages& stages) {
  using Model = typename Stages::model_type;
  auto& unit = *stages.chunks().front()->layers.front();
  if constexpr (LossModule<Model>)
    return static_cast<StackUnitOf<typename ModelTypes<Model, Context>::Last, Context>&>(unit).layer.model;
  else return static_cast<HeldUnit<Model, typename Context::execution_space>&>(unit).layer;
}

/// The first fields of a batch, as many as the Module's forward takes, as one input.
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

template <class Model>
constexpr void require_module() {
  static_assert(ModuleModel<Model>,
                "weft: model.forward is for a model that is one Module, `struct Own : Module<Own>`; one of several units runs in "
                "train_step, evaluate and predict");
}

template <class Stages, class Context, class B, class... X>
auto forward_call(Stages& stages, const Context& context, const B& batch, const X&... x) {
  using Model = typename Stages::model_type;
  require_module<Model>();
  if constexpr (ModuleModel<Model>) {
    const BatchShare share = share_of(batch);
    const Context own = context_of_call(context, share);
    open_step(stages, context, share);
    auto& chunk = *stages.chunks().front();
    const CallPlace place{&chunk.units.front(), &chunk.trained.front(), stages.accumulator().get()};
    Model& layer = module_of<Context>(stages);
    if constexpr (sizeof...(X) > 0) {
      const auto input = as_one_input(x...);
      return ModelCall<Model, Context, std::remove_const_t<decltype(input)>>(own, place, layer, input);
    } else {
      inputs_of_t<Model, Context> inputs(own.device(), batch);
      const auto input = first_fields<Model, Context>(inputs.first(0));
      return ModelCall<Model, Context, std::remove_const_t<decltype(input)>>(own, place, layer, input);
    }
  }
}

template <class Stages, class Context, class B, class F, class... X>
auto loss_call(Stages& stages, const Context& context, const B& batch, F f, const X&... x) {
  const Context own = context_of_call(context, share_of(batch));
  const auto input = as_one_input(x...);
  return LossCall<F, Context, std::remove_const_t<decltype(input)>>(own, std::move(f),
                                                                    stages.count_targets(context, batch).counted, input);
}

}  // namespace weft::detail
