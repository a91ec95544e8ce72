// SPDX-License-Identifier: Apache-2.0
#pragma once
// One run of a model over a batch: the context, the inputs and the executor, which knows neither of their types. Stages make one
// for each step.
//
//   ModelRun<Model, Context> run(context, chunks, table, part, share, accumulator, training);
//   run.executor.run({});

#include <memory>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/model_types.hpp>

namespace weft::detail {

/// A repeated unit's Output must have the placement of its Input.
template <class Input, class Output>
constexpr void require_closed() {
  static_assert(std::is_same_v<Input, Output>,
                "weft: a repeated block must return what it takes (same placement): here its output lies otherwise than its "
                "input; wrap the block's layers in Residual, or bring its output back with to_layout_of<X>; see Input and Output "
                "in this function's template arguments");
}

}  // namespace weft::detail

namespace weft {

template <bool yes>
constexpr void require_loss() {
  static_assert(
      yes,
      "weft: a model's back must return its loss as a LossSum: sum_losses(context, losses, targets) of one loss a token, or "
      "cross_entropy. A tensor could be a mean, and weft divides once by the tokens of the global batch that count");
}

namespace detail {

// M, not Model: nvcc's host pass takes a parameter for the concept of its name.
template <class M, class Context>
inline constexpr bool can_be_built = detail::Model<M, Context>;
/// Whether M can be built under Context and called in loops of one's own, though it has no loss.
template <class M, class Context>
inline constexpr bool is_open = ModuleModel<M> && !LossModule<M> && can_be_built<M, Context>;

template <class Model>
constexpr void refuse_training() {
  static_assert(
      !ModuleModel<Model>,
      "weft: train_step and evaluate of a Module without a loss: write `auto loss(const auto& batch) const`, which returns "
      "sum_losses(...), in it, or the loop yourself with model.forward(batch) and call.backward(gradient); see Model in "
      "this function's template arguments");
}

/// Whether Model can be built and run under Context. If its units do not fit each other, one error says why; if it cannot be
/// built its construction has said why.
template <class Model, class Context>
constexpr bool is_usable() {
  if constexpr (!can_be_built<Model, Context> || is_open<Model, Context>) {
    return false;
  } else {
    using Types = ModelTypes<Model, Context>;
    if constexpr (!Types::forwards) return false;  // the compiler has reported the layer
    else if constexpr (!Types::closes) require_closed<typename Types::Opened::first_type, typename Types::Opened::second_type>();
    else require_loss<Types::returns_loss>();
    return Types::sound;
  }
}

template <class Model, class Context>
struct ModelRun {
  using Exec = typename Context::execution_space;
  using Inputs = typename ModelTypes<Model, Context>::Inputs;

  WEFT_COLD ModelRun(const Context& of, std::vector<std::unique_ptr<Chunk<Exec>>>& chunks, const schedule::Table& table,
                     const typename Inputs::batch_type& part, GradientAccumulator& accumulator,
                     const TrainingInputs& training = {})
      : context(of),
        inputs(context.device(), part),
        executor({&context.device(), &context.env, &context.engine, &context, &inputs, pipeline_of(of)}, chunks, table,
                 share_of(part), accumulator, training) {}
  ModelRun(const ModelRun&) = delete;
  ModelRun& operator=(const ModelRun&) = delete;

  Context context;
  Inputs inputs;
  Executor<Exec> executor;

 private:
  static Communicator pipeline_of(const Context& context) {
    if constexpr (Context::has(pp{})) return context.comm(pp{});
    else return Communicator();
  }
};

}  // namespace detail

}  // namespace weft
