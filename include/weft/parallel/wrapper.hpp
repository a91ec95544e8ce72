// SPDX-License-Identifier: Apache-2.0
#pragma once
// The base of all wrappers. A wrapper is Wrapper<Policy, M>: the policy names the axis that it binds, the placement of the hidden
// state on that axis and the hooks that it registers. Wrappers nest in one order, outermost first: data, context, tensor, expert,
// pipeline, model.
//
//   DataParallel<TensorParallel<PipelineParallel<models::Gpt>>> model(mesh, config);

#include <memory>
#include <type_traits>
#include <utility>

#include <weft/autograd/model_check.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/context/context.hpp>
#include <weft/data/batch.hpp>
#include <weft/engine/loss_scale.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/optim/offloaded.hpp>
#include <weft/parallel/hook/compress.hpp>
#include <weft/parallel/model_functions.hpp>
#include <weft/parallel/model_options.hpp>
#include <weft/parallel/nesting.hpp>
#include <weft/parallel/nonfinite_trace.hpp>
#include <weft/parallel/policy_check.hpp>
#include <weft/parallel/proof_step.hpp>
#include <weft/parallel/reproducible/parts.hpp>
#include <weft/parallel/same_inputs.hpp>
#include <weft/parallel/same_parameters.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/stages_of.hpp>

namespace weft {

namespace detail {

/// The options, checked, and with a store for offloaded state.
ModelOptions with_store(const ModelOptions& given, int rank, bool rehearsed);
StageSettings stage_settings(DefaultDevice& device, schedule::AnySchedule schedule, const ModelOptions& options);

struct Inside {};  // constructed by another wrapper

// True if X is the policy's axis, or one of its axes if it binds several.
template <class Policy, class X>
inline constexpr bool policy_uses = std::is_same_v<X, typename Policy::axis>;
template <class Policy, class X>
requires requires { typename Policy::axes; }
inline constexpr bool policy_uses<Policy, X> = Policy::axes::template has<X>;

// The loss scale if the options ask for one or the element type needs one, else null.
template <class S>
std::shared_ptr<LossScale> make_loss_scale(const ModelOptions& options) {
  if (options.numerics.loss_scale) return std::make_shared<LossScale>(*options.numerics.loss_scale);
  return std::is_same_v<S, float16> ? std::make_shared<LossScale>() : nullptr;
}

// The state of the model as a whole, kept only by the outermost wrapper.
struct Outermost {
  DefaultDevice* device;
  ModelOptions options;
  std::shared_ptr<LossScale> loss_scale;
  Communicator everyone;
  mesh_layout::RankGrids grids;
};

template <class M>
using inner_of_t = std::conditional_t<is_wrapper<M>, M, StagesOf<M>>;

}  // namespace detail

/// M with the axis of a policy bound.
template <class Policy, class M>
class Wrapper : public detail::ModelFunctions<Wrapper<Policy, M>, detail::model_of_t<M>> {
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
  /// True if X... has the axes of this wrapper and of those inside it.
  template <detail::Axis... X>
  static constexpr bool has_axes() {
    if constexpr (!(std::is_same_v<X, axis> || ...)) return false;
    else if constexpr (is_wrapper<M>) return M::template has_axes<X...>();
    else return true;
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
  Wrapper(const Mesh<X...>& mesh,  // an argument that is no Config names a field that it lacks, or in another order
          const Config& config = detail::no_config<model_type>(), ModelOptions options = {})
      : Wrapper((static_cast<void>(comm::InFunction(mesh.communicator(), comm::ProgramFunction::model)), detail::Inside{}),
                root(mesh.world().device(), options = agreed(options, mesh, config)), mesh, config, options) {
    outermost_.reset(new detail::Outermost{&mesh.world().device(), options,
                                           detail::make_loss_scale<detail::computed_t<typename model_type::scalar>>(options),
                                           mesh.communicator(), mesh.grids()});
    stages().set_everyone(mesh.communicator());
    static_assert((uses(X{}) && ...) || !has_axes<X...>(),
                  "weft: this Mesh has an axis that no wrapper of the model uses, so its ranks would all do the same work: add "
                  "the wrapper, or leave the axis out of the mesh");
  }

  /// Constructed by the wrapper around this one.
  template <class Context, detail::Axis... X>
  WEFT_COLD Wrapper(detail::Inside, const Context& context, const Mesh<X...>& mesh, const Config& config,
                    const ModelOptions& options)
      : comm_(comm_of(mesh)), policy_(make_policy(context, mesh, options)), inner_(make(bind(context), mesh, config, options)) {}

  /// Compares, by a hash, the parameter elements that several ranks hold: parameters that are not cut over dp, cp or tp, copies
  /// of shards, experts over edp. Throws Error on all ranks of an axis on which one differs. Collective over the mesh. An
  /// optimizer's step calls it every ModelOptions::numerics.compare_every steps.
  void require_equal_parameters() {
    const comm::InFunction mark(communicator(), comm::ProgramFunction::equal_parameters);
    std::vector<ParameterState*> states;
    stages().for_each_state([&](ParameterState& state) { states.push_back(&state); });
    detail::require_equal_parameters(device(), stages().axes(), states, options().shard.replicate);
  }
  /// Makes the next train_step compare the communication hook's sums with plain ones, as the first one does. All ranks call it.
  void check_hook() {
    if (detail::Hooks* hooks = policy_.hooks()) hooks->check_sums();
    if constexpr (is_wrapper<M>) inner_.check_hook();
  }
  /// Names the state that the communication hook keeps from step to step, for checkpoints.
  void keep_hooks(hook::Keeper& keeper) {
    if (detail::Hooks* hooks = policy_.hooks()) hooks->keep(keeper);
    if constexpr (is_wrapper<M>) inner_.keep_hooks(keeper);
  }
  /// Calls f(name, degree) for each axis.
  template <class F>
  void for_each_axis(F&& f) {
    const auto all = context();
    decltype(context())::for_each_axis([&](auto axis) { f(axis.name, all.size(axis)); });
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

  /// This context with the axes of this wrapper, and of those inside it, in force.
  template <class Context>
  auto bound(const Context& context) {
    if constexpr (is_wrapper<M>) return inner_.bound(bind(context));
    else return bind(context);
  }

 private:
  template <class>
  friend class gpu::GraphedStep;
  friend class detail::ModelFunctions<Wrapper, detail::model_of_t<M>>;
  template <detail::Axis... X>
  static ModelOptions agreed(ModelOptions options, const Mesh<X...>& mesh, const Config& config) {
    adjust(options);
    if (detail::chooses_options(mesh.world().device())) [[unlikely]]
      choose_options(mesh.world().device(), options);
    detail::require_same_construction(mesh.communicator(), options, config);
    return detail::with_store(options, mesh.world().rank(), mesh.world().communicator().rehearsed());
  }
  WEFT_COLD static void choose_options(DefaultDevice& device, ModelOptions& options) {
    ModelOptions fixed;
    fixed.shard.stage = detail::open_stage;
    adjust(fixed);
    detail::choose_options(
        device, options, fixed, requires { Policy::shards_by_stage; }, uses(pp{}));
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
    Context<Compute<Exec, detail::computed_t<typename model_type::scalar>>> context(device, std::move(environment));
    context.construction.lora = &options.lora;
    context.engine.piece_bytes = options.tensor.piece_bytes;
    context.engine.loss_chunks = options.loss.chunks;
    return context;
  }
  // The context of a call, with all axes in force.
  auto context() {
    auto context = root(*outermost_->device, outermost_->options);
    if (outermost_->loss_scale) context.engine.loss_scale = outermost_->loss_scale->value();
    return bound(context);
  }
  // A policy over several axes is given the mesh.
  template <class Context>
  Policy make_policy(const Context& context, const auto& mesh, const ModelOptions& options) {
    if constexpr (requires { typename Policy::axes; }) return Policy(context, mesh, options);
    else if constexpr (requires { Policy::ranks_of(mesh, options); })
      return Policy(Policy::ranks_of(mesh, options), context.device(), options);
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

#ifndef WEFT_COMPILED
#include <weft/parallel/wrapper_impl.hpp>
#endif
