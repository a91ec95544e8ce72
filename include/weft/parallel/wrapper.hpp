// SPDX-License-Identifier: Apache-2.0
#pragma once
// The base of all wrappers. A wrapper is Wrapper<Policy, M>: the policy names the axis that it binds, the placement of the hidden
// state on that axis and the hooks that it registers. Wrappers nest in one order, outermost first: data, context, tensor, expert,
// pipeline, model.
//
//   DataParallel<TensorParallel<PipelineParallel<models::Gpt>>> model(mesh, config);

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/layer/batch.hpp>
#include <weft/layer/context.hpp>
#include <weft/layer/loss_scale.hpp>
#include <weft/layer/model_check.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/optim/offloaded.hpp>
#include <weft/parallel/hook/compress.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/parallel/nesting.hpp>
#include <weft/parallel/nonfinite_trace.hpp>
#include <weft/parallel/policy_check.hpp>
#include <weft/parallel/reproducible/parts.hpp>
#include <weft/parallel/same_inputs.hpp>
#include <weft/parallel/same_parameters.hpp>
#include <weft/parallel/whole_parameter.hpp>
#include <weft/pipeline/decode.hpp>
#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/own_loop.hpp>
#include <weft/pipeline/predictions.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/stages.hpp>

namespace weft {

namespace detail {

// The options, checked, and with a store for offloaded state.
WEFT_COLD inline ModelOptions with_store(const ModelOptions& given, int rank, bool rehearsed) {
  given.check();
  ModelOptions options = given;
  if (rehearsed && options.shard.offload.make) options.shard.offload.store = std::make_shared<RehearsedStore>();
  if (!options.shard.offload.store) options.shard.offload.store = make_store(options.shard.offload, rank);
  return options;
}

struct Inside {};  // constructed by another wrapper

// True if X is the policy's axis, or one of its axes if it binds several.
template <class Policy, class X>
inline constexpr bool policy_uses = std::is_same_v<X, typename Policy::axis>;
template <class Policy, class X>
requires requires { typename Policy::axes; }
inline constexpr bool policy_uses<Policy, X> = Policy::axes::template has<X>;

template <class Exec>
WEFT_COLD StageSettings stage_settings(Device<Exec>& device, schedule::AnySchedule schedule, const ModelOptions& options) {
  const auto reproducible = options.numerics.reproducible.accumulator();
  std::shared_ptr<GradientAccumulator> accumulator =
      reproducible ? reproducible(device) : std::make_shared<PlainAccumulator<Exec>>(device);
  if (options.numerics.trace_nonfinite) accumulator = std::make_shared<NonfiniteTrace<Exec>>(device, std::move(accumulator));
  return {.schedule = std::move(schedule),
          .accumulator = std::move(accumulator),
          .timeline = options.pipeline.timeline.get(),
          .freeze = options.freeze,
          .lora = options.lora};
}

// The loss scale if the options ask for one or the element type needs one, else null.
template <class S>
std::shared_ptr<LossScale> make_loss_scale(const ModelOptions& options) {
  if (options.numerics.loss_scale) return std::make_shared<LossScale>(*options.numerics.loss_scale);
  return std::is_same_v<S, float16> ? std::make_shared<LossScale>() : nullptr;
}

// The state of the model as a whole, kept by the outermost wrapper alone.
struct Outermost {
  DefaultDevice* device;
  ModelOptions options;
  std::shared_ptr<LossScale> loss_scale;
  Communicator everyone;
  mesh_layout::RankGrids grids;
};

template <class M>
using inner_of_t = std::conditional_t<is_wrapper<M>, M, Stages<M>>;

}  // namespace detail

/// M with the axis of a policy bound, and the functions that all wrapped models have.
template <class Policy, class M>
class Wrapper {
  static_assert(detail::CheckedHooksOf<Policy>::said);

 public:
  using model_type = detail::model_of_t<M>;
  using Config = typename model_type::Config;
  using Batch = detail::batch_of_t<model_type>;
  using axis = typename Policy::axis;
  /// True if a rank keeps only pieces of parameters, in every run.
  static constexpr bool shards_parameters = Policy::shards_parameters;
  using Inner = detail::inner_of_t<M>;

  /// True if this wrapper, or one inside it, uses axis X.
  template <detail::Axis X>
  static constexpr bool uses(X x) {
    if constexpr (detail::policy_uses<Policy, X>) return true;
    else if constexpr (is_wrapper<M>) return M::uses(x);
    else return false;
  }

  /// Sets the options that the types of this wrapper and of those inside it choose.
  static void adjust(ModelOptions& options) {
    Policy::adjust(options);
    if constexpr (is_wrapper<M>) M::adjust(options);
  }

  /// The model laid over `mesh`. Collective: all ranks pass the same options and config, else UsageError on all of them before
  /// anything is allocated. Throws LayoutError if the config does not fit the degrees. (There are as few constructors as
  /// possible: compilers list all of them if a field of the config is misspelled.)
  template <detail::Axis... X>
  Wrapper(const Mesh<X...>& mesh,  // what is no Config names a field that it lacks, or fields out of its order
          const Config& config, ModelOptions options = {})
      : Wrapper(detail::Inside{}, root(mesh.world().device(), options = agreed(options, mesh, config)), mesh, config, options) {
    outermost_.reset(new detail::Outermost{&mesh.world().device(), options,
                                           detail::make_loss_scale<typename model_type::scalar>(options), mesh.communicator(),
                                           mesh.grids()});
    static_assert((uses(X{}) && ...),
                  "weft: this Mesh has an axis that no wrapper of the model uses, so its ranks would all do the same work: add "
                  "the wrapper, or leave the axis out of axes<...>");
  }

  /// Constructed by the wrapper around this one.
  template <class Context, detail::Axis... X>
  WEFT_COLD Wrapper(detail::Inside, const Context& context, const Mesh<X...>& mesh, const Config& config,
                    const ModelOptions& options)
      : comm_(comm_of(mesh)), policy_(make_policy(context, mesh, options)), inner_(make(bind(context), mesh, config, options)) {}

  /// One step: forward and backward of all micro-batches of this rank's share, gradients summed over every axis. Returns the mean
  /// loss over the tokens of the global batch that count, the same on every rank. Gradients start anew with each call:
  /// micro-batches of one Batch add up, calls do not, so if the model has an optimizer, two calls without its step between them
  /// throw UsageError. Also throws UsageError if ranks of one share (over tp, cp, pp) have different batches, or if the data
  /// ranks' shares are not contiguous in one step's global batch.
  double train_step(const Batch& batch) {
    if (outermost_->loss_scale) outermost_->loss_scale->apply();
    return enter(here(), [&](const auto& context, auto& stages) {
      auto here = context;
      here.engine.longest = detail::require_batches(context, batch, true);
      return stages.train_step(here, batch);
    });
  }
  /// The mean loss, without dropout and gradients. Ranks of one share have the same batch; dp ranks may have any.
  double evaluate(const Batch& batch) {
    return enter(here(), [&](const auto& context, auto& stages) {
      detail::require_batches(context, batch, false);
      return stages.evaluate(context, batch);
    });
  }
  /// What the model gives for this batch, without dropout: of a Module its `predict(batch)`, else its forward of the first
  /// fields; of other models the `predict(x)` of the last unit (with the context first if it is no Module), or a recipe's logits.
  /// Of the samples of this rank's share, the same on its other ranks (also under pp and tp), or with Gather::whole of the global
  /// batch on every rank.
  Prediction predict(const Batch& batch, Gather gather = Gather::share) {
    return enter(here(), [&](const auto& context, auto& stages) {
      detail::require_batches(context, batch, gather == Gather::whole);
      return detail::predict(stages, context, batch, gather);
    });
  }
  // Of a batch of another type.
  double train_step(const detail::OtherBatch<model_type> auto& batch) { return detail::refuse_batch<model_type>(batch); }
  double evaluate(const detail::OtherBatch<model_type> auto& batch) { return detail::refuse_batch<model_type>(batch); }
  Prediction predict(const detail::OtherBatch<model_type> auto& batch, Gather = Gather::share) {
    return detail::refuse_batch<model_type>(batch), Prediction();
  }
  /// The logits [vocabulary] that follow these tokens, the same on all ranks of one share, which pass the same tokens.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens) {
    return enter(here(), [&](const auto& context, auto& stages) {
      detail::require_prompt(context, tokens);
      return detail::next_logits(stages, context, tokens);
    });
  }
  /// The logits [tokens, vocabulary] of one sequence, the same on all ranks of one share.
  std::vector<double> logits(std::span<const std::int32_t> tokens) {
    return enter(here(), [&](const auto& context, auto& stages) {
      detail::require_prompt(context, tokens);
      return detail::all_logits(stages, context, tokens);
    });
  }

  // ---- one token after the other (generation/generate.hpp)

  /// Appends new tokens to the sequences of `cache`, none to those whose vector is empty, and returns the logits [sequences,
  /// vocabulary] after the last token of each (0 where there is no new one). The first call takes the prompts, of any lengths;
  /// later ones usually one token each, which then costs one row of each layer. The same on all ranks of one share, which pass
  /// the same tokens; under FSDP and ep all data ranks call it together. Numerics: those of `logits` up to rounding. Throws
  /// ShapeError if a sequence would be longer than the cache or the model has room for, UsageError for other tokens on other
  /// ranks, under cp, for a mask that is not causal, and for experts that drop tokens; the cache is then as before.
  std::vector<double> decode(KeyValueCache& cache, std::span<const std::vector<std::int32_t>> tokens) {
    return enter(here(), [&](const auto& context, auto& stages) {
      detail::require_prompts(context, tokens);
      return detail::decode<double>(stages, context, cache, tokens, tokens.size() * vocabulary(),
                                    [](const std::vector<double>& logits) { return logits; });
    });
  }
  /// The same, but returns the tokens that choose(logits) has made of the logits, one for each sequence. It is called where the
  /// logits are, so they do not go through the pipeline; ranks that call it must choose alike.
  template <class Choose>
  requires std::is_invocable_r_v<std::vector<std::int32_t>, Choose&, const std::vector<double>&> std::vector<std::int32_t> decode(
      KeyValueCache& cache, std::span<const std::vector<std::int32_t>> tokens, Choose choose) {
    return enter(here(), [&](const auto& context, auto& stages) {
      detail::require_prompts(context, tokens);
      return detail::decode<std::int32_t>(stages, context, cache, tokens, tokens.size(), choose);
    });
  }
  /// The tokens that a model knows; 0 if its type does not say.
  std::size_t vocabulary() {
    if constexpr (requires { model_type::vocabulary(stages().config()); }) return model_type::vocabulary(stages().config());
    else return 0;
  }

  // ---- loops of one's own (pipeline/model_call.hpp)

  /// The model's forward, which waits for its backward: of a Module on the first fields of the batch, or on placed tensors of
  /// these samples; of other models on the batch, up to what the last unit predicts, or logits, or without either what enters the
  /// last unit. The gradients of all calls add up until the optimizer's step. Of a batch of several micro-batches a call takes
  /// one: forward(batch, MicroBatchIndex{i}). All ranks make the same calls in the same order.
  template <class... X>
  auto forward(const Batch& batch, const X&... x) {
    return forward(batch, detail::whole_batch, x...);
  }
  template <class... X>
  auto forward(const Batch& batch, MicroBatchIndex micro, const X&... x) {
    return in_own_loop(
        batch, [&](const auto& context, auto& stages) { return detail::forward_call(stages, context, batch, micro, x...); });
  }
  /// The model's own loss of these samples: value() as train_step's, and backward(weight) adds the gradients of the parameters.
  auto loss(const Batch& batch, MicroBatchIndex micro = detail::whole_batch) {
    return in_own_loop(batch,
                       [&](const auto& context, auto& stages) { return detail::model_loss_call(stages, context, batch, micro); });
  }
  /// The loss f(Variables of x...) of these samples, which returns sum_losses(...): its value() is divided by the count of the
  /// global batch, and backward() gives the gradients of x.
  template <class F, class... X>
  auto loss(const Batch& batch, F f, const X&... x) {
    return loss(batch, detail::whole_batch, std::move(f), x...);
  }
  template <class F, class... X>
  auto loss(const Batch& batch, MicroBatchIndex micro, F f, const X&... x) {
    return enter(here(), [&](const auto& context, auto& stages) {
      return detail::loss_call(stages, context, batch, micro, std::move(f), x...);
    });
  }
  /// The fields of the batch as placed tensors, inputs[image], for forward and loss.
  auto inputs(const Batch& batch, MicroBatchIndex micro = detail::whole_batch) {
    return enter(here(), [&](const auto& context, auto&) {
      return detail::inputs_of_t<model_type, std::remove_cvref_t<decltype(context)>>(context, batch)
          .first(detail::micro_of(batch, micro));
    });
  }

  /// Declares that the gradients of the last train_step will not be used, so that another may follow without an optimizer's step.
  void discard_gradients() { stages().discard_gradients(); }

  /// Compares, by a hash, the parameter elements that several ranks hold: parameters that are not cut over dp, cp or tp, copies
  /// of shards, experts over edp. Throws Error on all ranks of an axis on which one differs. Collective over the mesh. An
  /// optimizer's step calls it as often as ModelOptions::numerics.compare_every says.
  void require_equal_parameters() {
    enter(here(), [&](const auto& context, auto& stages) {
      detail::require_equal_parameters(context, stages, options().shard.replicate);
    });
  }
  /// Makes the next train_step compare the communication hook's sums with plain ones, as the first one does. All ranks call it.
  void check_hook() {
    if (detail::Hooks* hooks = policy_.hooks()) hooks->check_sums();
    if constexpr (is_wrapper<M>) inner_.check_hook();
  }
  /// Names what the communication hook keeps from step to step, for checkpoints.
  void keep_hooks(hook::Keeper& keeper) {
    if (detail::Hooks* hooks = policy_.hooks()) hooks->keep(keeper);
    if constexpr (is_wrapper<M>) inner_.keep_hooks(keeper);
  }
  /// The whole parameter of this name, [global.size()] in double and row-major, the same on every rank. All ranks call it with
  /// the same name. Throws UsageError if the model has no parameter of this name. Numerics: exact.
  std::vector<double> parameter(std::string_view name) {
    return detail::whole_parameter(device(), communicator(), stages(), name, false, 1);
  }
  /// The parameter's gradient in the last train_step (a loss scale divided out); zero if nothing was added to it.
  std::vector<double> gradient(std::string_view name) {
    stages().gradients()->complete();
    return detail::whole_parameter(device(), communicator(), stages(), name, true, loss_scale() ? loss_scale()->applied() : 1);
  }
  /// The names of the model's parameters in its order, the same on every rank.
  const std::vector<std::string>& parameter_names() { return stages().parameter_names(); }
  /// The parameters whose names match a pattern (`*` stands for any characters, dots as well, `?` for one) are not trained from
  /// here on: no gradient and no memory for one, no part in sums, norms and the optimizer's step, no optimizer state, no decay.
  /// Other parameters keep their bits. A communication hook starts anew. Collective over the mesh; not between train_step and the
  /// optimizer's step. Throws UsageError for a pattern that names no parameter.
  template <std::convertible_to<std::string_view>... Pattern>
  void freeze(const Pattern&... patterns) {
    set_trainable(false, patterns...);
  }
  /// The opposite: the parameters are trained from here on. Optimizer state starts anew.
  template <std::convertible_to<std::string_view>... Pattern>
  void unfreeze(const Pattern&... patterns) {
    set_trainable(true, patterns...);
  }
  /// Calls f(ParameterState&) for each parameter that this rank holds, once.
  template <class F>
  void for_each_state(F&& f) {
    stages().for_each_state(f);
  }
  /// The values that this rank's layers keep from step to step beside their parameters (a router's bias and load).
  auto buffers() { return stages().buffers(); }
  /// Calls f(name, degree) for each axis.
  template <class F>
  void for_each_axis(F&& f) {
    enter(here(), [&](const auto& context, auto&) {
      std::remove_cvref_t<decltype(context)>::for_each_axis([&](auto axis) { f(axis.name, context.size(axis)); });
    });
  }
  /// All ranks of the mesh.
  const Communicator& communicator() const { return outermost_->everyone; }
  /// The order of their ranks along the axes.
  const mesh_layout::RankGrids& grids() const { return outermost_->grids; }
  auto& device() const { return *outermost_->device; }
  const ModelOptions& options() const { return outermost_->options; }
  /// Null if gradients are not scaled.
  const std::shared_ptr<LossScale>& loss_scale() const { return outermost_->loss_scale; }
  auto& stages() {
    if constexpr (is_wrapper<M>) return inner_.stages();
    else return inner_;
  }

  /// Calls f(context with all axes bound, stages).
  template <class Context, class F>
  auto enter(const Context& context, F&& f) {
    if constexpr (is_wrapper<M>) return inner_.enter(bind(context), std::forward<F>(f));
    else return f(bind(context), inner_);
  }

 private:
  template <class>
  friend class gpu::GraphedStep;
  template <class F>
  auto in_own_loop(const Batch& batch, F&& f) {
    static_assert(!uses(pp{}),
                  "weft: a loop of one's own calls the whole model, and a pipeline's rank has a part of it: leave "
                  "PipelineParallel out, or use train_step");
    if (outermost_->loss_scale) outermost_->loss_scale->apply();
    return enter(here(), [&](const auto& context, auto& stages) {
      auto here = context;
      here.engine.longest = detail::require_batches(context, batch, true);
      batch.check();
      return f(std::as_const(here), stages);
    });
  }
  template <class... Pattern>
  WEFT_COLD void set_trainable(bool trainable, const Pattern&... patterns) {
    const std::vector<std::string_view> all{std::string_view(patterns)...};
    enter(here(), [&](const auto& context, auto& stages) { stages.set_trainable(context, communicator(), all, trainable); });
  }
  template <detail::Axis... X>
  static ModelOptions agreed(ModelOptions options, const Mesh<X...>& mesh, const Config& config) {
    adjust(options);
    detail::require_same_construction(mesh.communicator(), options, config);
    return detail::with_store(options, mesh.world().rank(), mesh.world().communicator().rehearsed());
  }
  template <detail::Axis... X>
  static Communicator comm_of(const Mesh<X...>& mesh) {
    constexpr bool there = (std::is_same_v<X, axis> || ...);
    static_assert(
        there,
        "weft: the model has a wrapper for an axis that this Mesh lacks: name the axis in axes<...>, or leave the wrapper out");
    if constexpr (there) return mesh.comm(axis{});
    else return Communicator();
  }
  template <class Exec>
  static auto root(Device<Exec>& device, const ModelOptions& options) {
    detail::Environment environment;
    environment.seed = options.seed;
    environment.ulysses = options.context == ContextMethod::ulysses;
    environment.lora = &options.lora;
    detail::EngineState engine;
    return Context<Compute<Exec, typename model_type::scalar>>(device, std::move(environment), std::move(engine));
  }
  auto here() const {
    auto context = root(*outermost_->device, outermost_->options);
    if (outermost_->loss_scale) context.engine.loss_scale = outermost_->loss_scale->value();
    return context;
  }
  // A policy over several axes is given the mesh.
  template <class Context>
  Policy make_policy(const Context& context, const auto& mesh, const ModelOptions& options) {
    if constexpr (requires { typename Policy::axes; }) return Policy(context, mesh, options);
    else return Policy(comm_, context.device(), options);
  }
  template <class Context>
  auto bind(const Context& context) {
    if constexpr (requires { typename Policy::axes; }) return policy_.bind(context, comm_);
    else return context.template with<typename Policy::hidden_placement>(axis{}, comm_, policy_.hooks());
  }
  template <class Context>
  static Inner make(const Context& context, const auto& mesh, const Config& config, const ModelOptions& options) {
    if constexpr (is_wrapper<M>) return Inner(detail::Inside{}, context, mesh, config, options);
    else return Inner(context, config, detail::stage_settings(context.device(), Policy::schedule(options), options));
  }

  Communicator comm_;
  Policy policy_;
  Inner inner_;
  std::unique_ptr<detail::Outermost> outermost_;  // only in the wrapper that a program constructs
};

/// Stands in for a wrapper whose policy is not one, so that there is only one error.
template <class Policy, class M>
requires(!detail::WrapperPolicy<Policy>) class Wrapper<Policy, M> : public detail::RefusedInner<M> {
  static_assert(detail::RefusedPolicy<Policy>::said);

 public:
  using detail::RefusedInner<M>::RefusedInner;
};

}  // namespace weft
