// SPDX-License-Identifier: Apache-2.0
#pragma once
// A layer's forward receives a StepContext. Its constructor receives a Context: a StepContext with the model under construction.
// So a layer makes parameters in its constructor only. Types name the axes in force, the execution space and the scalar;
// everything else is in plain structs, so that layers stay plain types with templated members.
//
//   Norm(const auto& context, std::size_t width) : gain(context, "gain", {width}, ones) {}
//   if constexpr (Context::has(tp{})) context.comm(tp{}).all_reduce(x);   // in a forward

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>
#include <weft/device/device.hpp>
#include <weft/engine/engine_state.hpp>
#include <weft/tensor/placement.hpp>

namespace weft {

/// The execution space and the scalar in which a model computes.
template <class Exec, detail::Real S>
struct Compute {
  using execution_space = Exec;
  using scalar = S;
};

/// An axis in force, its communicator, and the placement of the hidden state on it between blocks.
template <detail::Axis A, class HiddenPlacement = Invariant<A>>
struct Bind {
  using axis = A;
  using hidden_placement = HiddenPlacement;
  Communicator comm;
};

namespace detail {

/// The hidden placement of an axis of the expert mesh, which places no tensor of the dense mesh. The axis is in force, so that
/// its communicator can be used; tensors are placed on it in Context::expert_mesh().
struct ExpertMeshAxis {
  using axis = void;
};

struct CachedTokens;

/// The run as layers see it: the part of a context on which no type depends.
struct Environment {
  std::uint64_t seed = 1;     ///< of weights and dropout
  std::uint64_t step = 0;     ///< dropout masks differ from step to step
  std::size_t first_row = 0;  ///< of this micro-batch in the global batch, in tokens
  std::size_t length = 0;     ///< tokens of a sequence; see sequence_length(context, x), context/global_index.hpp
  std::size_t rows = 0;       ///< tokens of this micro-batch on this data rank, before cp and tp cut them; 0: unknown
  /// GradientAccumulator::separates_terms: rows of different data ranks are not multiplied together.
  bool separates_terms = false;
  /// The document of each token of this micro-batch, [rows], in the device's memory and before cp and tp cut the rows; null: a
  /// sequence is one document. See documents_of(context, x), context/global_index.hpp.
  std::shared_ptr<const std::int32_t> documents = nullptr;
  /// While a model decodes: where its attention layers keep keys and values, and which token each row is; else null.
  CachedTokens* cached = nullptr;
  bool ulysses = false;      ///< ModelOptions::context: attention over cp is by Ulysses, else by a ring
  bool training = true;      ///< dropout is active
  double loss_gradient = 1;  ///< of each token's loss: the loss scale over the tokens that count in the global batch
  /// The gradient of each token's part of an auxiliary loss: the loss scale over the tokens of the global batch, masked or not.
  double auxiliary_gradient = 1;
};

/// Tokens of a sequence, for weft's own layers, which take into account the rows of it that a rank holds.
inline std::size_t& sequence_length(Environment& environment) { return environment.length; }
inline std::size_t sequence_length(const Environment& environment) { return environment.length; }

/// Stands in for Environment::length if a rank holds only some rows of a sequence: reading it does not compile.
template <class Rows>
struct CutLength {
  operator std::size_t() const {
    static_assert(std::is_void_v<Rows>,
                  "weft: rows of a sequence are cut over cp or tp here, so context.env.length is not the number of rows that a "
                  "rank holds: take sequence_length(context, x) where x holds whole sequences, and positions_of(context, x) for "
                  "each row's place in its sequence");
    return 0;
  }
};
struct CutEnvironment : Environment {
  CutEnvironment() = default;
  CutEnvironment(Environment&& whole) noexcept : Environment(std::move(whole)) {}
  [[no_unique_address]] CutLength<CutEnvironment> length;
};

// Whether this placement cuts rows inside a sequence: over cp always, over tp under sequence parallelism. Over dp a rank has
// whole sequences.
template <class Placed>
inline constexpr bool cuts_sequences = (std::is_same_v<typename Placed::axis, cp> ||
                                        std::is_same_v<typename Placed::axis, tp>)&&shard_dim<Placed> == 0;

template <class A, class First, class... Rest>
auto find_bind() {
  if constexpr (std::is_same_v<A, typename First::axis>) return std::type_identity<First>{};
  else return find_bind<A, Rest...>();
}

}  // namespace detail

template <class C, class... B>
class StepContext;
template <class C, class... B>
class Context;

namespace detail {

template <class C, class... B>
const Construction& construction_of(const Context<C, B...>& context) {
  return context.construction;
}
/// Refuses to make a layer or a parameter in a step.
template <class C, class... B>
Construction construction_of(const StepContext<C, B...>&) {
  static_assert(sizeof...(B) > 99,
                "weft: a layer or a Parameter is made while a step runs, so it would be drawn anew each time and never trained: "
                "make it in the constructor of the layer that uses it");
  return {};
}

}  // namespace detail

/// The context of a layer's forward and backward: C is a Compute, B are the Binds of the axes in force, outermost wrapper first.
template <class C, class... B>
class StepContext : B... {
 public:
  using execution_space = typename C::execution_space;
  using scalar = typename C::scalar;
  using device_type = Device<execution_space>;
  /// The Bind of an axis in force.
  template <class A>
  using bind_t = typename decltype(detail::find_bind<A, B...>())::type;

  /// An Environment; its `length` cannot be read if rows of a sequence are cut over an axis.
  std::conditional_t<(detail::cuts_sequences<typename B::hidden_placement> || ...), detail::CutEnvironment, detail::Environment>
      env;

  /// State of the wrappers and the executor; no layer needs it.
  detail::EngineState engine;

  StepContext(device_type& device, detail::Environment environment, detail::EngineState state, B... binds)
      : B(std::move(binds))..., env(std::move(environment)), engine(std::move(state)), device_(&device) {}

  device_type& device() const { return *device_; }

  /// Whether this axis is in force.
  template <detail::Axis A>
  static constexpr bool has(A) {
    return (std::is_same_v<A, typename B::axis> || ...);
  }
  template <detail::Axis A>
  const Communicator& comm(A) const {
    static_assert(has(A{}), "weft: this axis is not in force here: wrap the model in the wrapper that binds it");
    if constexpr (has(A{})) return static_cast<const bind_t<A>&>(*this).comm;
  }
  /// Gives the ranks of an axis that is in force another order.
  template <detail::Axis A>
  void reorder(A, Communicator ranks) {
    static_cast<bind_t<A>&>(*this).comm = std::move(ranks);
  }
  /// This rank's coordinate on the axis; 0 if the axis is not in force.
  template <detail::Axis A>
  std::size_t rank(A axis) const {
    if constexpr (has(A{})) return static_cast<std::size_t>(comm(axis).rank());
    else return 0;
  }
  /// The degree of the axis; 1 if the axis is not in force.
  template <detail::Axis A>
  std::size_t size(A axis) const {
    if constexpr (has(A{})) return static_cast<std::size_t>(comm(axis).size());
    else return 1;
  }

  /// Whether this axis is in force and places tensors of this context.
  template <detail::Axis A>
  static constexpr bool places(A) {
    return ((std::is_same_v<A, typename B::axis> && !std::is_same_v<typename B::hidden_placement, detail::ExpertMeshAxis>) ||
            ...);
  }
  /// The bits of the axes that place tensors: not those of the expert mesh, nor pp, whose stages share no tensors.
  static constexpr unsigned placed =
      ((std::is_same_v<typename B::hidden_placement, detail::ExpertMeshAxis> || std::is_same_v<typename B::axis, pp>
            ? 0u
            : axis_bit<typename B::axis>) |
       ... | 0u);
  /// Calls f(axis) for each axis that places tensors.
  template <class F>
  static constexpr void for_each_axis([[maybe_unused]] F&& f) {
    [[maybe_unused]] const auto each = [&]<class One>(std::type_identity<One>) {
      if constexpr (!std::is_same_v<typename One::hidden_placement, detail::ExpertMeshAxis>) f(typename One::axis{});
    };
    (each(std::type_identity<B>{}), ...);
  }

  /// Refused: only a constructor makes the parts of a layer.
  const StepContext& operator/(std::string_view) const {
    static_cast<void>(detail::construction_of(*this));
    return *this;
  }

  /// The context of the expert mesh over the same ranks, for parameters and tensors of experts: edp and etp place them; ep only
  /// selects the experts of this rank, as pp selects layers.
  auto expert_mesh() const {
    return StepContext<C, Bind<edp>, Bind<etp>, Bind<ep, detail::ExpertMeshAxis>>(*device_, env, engine, {comm(edp{})},
                                                                                  {comm(etp{})}, {comm(ep{})});
  }

 private:
  device_type* device_;
};

/// The context of a layer's constructor, in which it makes its parameters. Wrappers bind their axes in one.
template <class C, class... B>
class Context : public StepContext<C, B...> {
  using Step = StepContext<C, B...>;

 public:
  using typename Step::device_type;

  detail::Construction construction;

  Context(device_type& device, detail::Environment environment, B... binds)
      : Context(device, std::move(environment), {}, {}, std::move(binds)...) {}
  Context(device_type& device, detail::Environment environment, detail::EngineState state, B... binds)
      : Context(device, std::move(environment), std::move(state), {}, std::move(binds)...) {}
  Context(device_type& device, detail::Environment environment, detail::EngineState state, detail::Construction model, B... binds)
      : Step(device, std::move(environment), std::move(state), std::move(binds)...), construction(std::move(model)) {}

  /// This context with one more axis in force.
  template <class HiddenPlacement, detail::Axis A>
  auto with(A, Communicator comm, detail::Hooks* hooks = nullptr) const {
    static_assert(!Step::has(A{}), "weft: this axis is bound twice: two wrappers over the same axis");
    detail::EngineState state = this->engine;
    if (hooks) state.add(hooks);
    return Context<C, B..., Bind<A, HiddenPlacement>>(this->device(), this->env, std::move(state), construction,
                                                      B{this->comm(typename B::axis{})}...,
                                                      Bind<A, HiddenPlacement>{std::move(comm)});
  }

  /// The context of a part of the layer: `context / "query"` extends the path of names.
  WEFT_OUT_OF_LINE Context operator/(std::string_view name) const {
    Context inner = *this;
    detail::append_to(inner.construction.path, {construction.path.empty() ? "" : ".", name});
    return inner;
  }

  /// The same over the expert mesh (StepContext::expert_mesh).
  auto expert_mesh() const {
    return Context<C, Bind<edp>, Bind<etp>, Bind<ep, detail::ExpertMeshAxis>>(
        this->device(), this->env, this->engine, construction, {this->comm(edp{})}, {this->comm(etp{})}, {this->comm(ep{})});
  }
};

namespace detail {

// To<C, B...> without pp, whose stages share no tensors: layers are compiled once for models with and without a pipeline.
template <template <class, class...> class To, class Done, class... B>
struct WithoutPipeline;
template <template <class, class...> class To, class C, class... Kept>
struct WithoutPipeline<To, To<C, Kept...>> {
  using type = To<C, Kept...>;
  template <class Context, class... More>
  static type of(const Context& context, More... more) {
    return type(context.device(), context.env, context.engine, std::move(more)..., Kept{context.comm(typename Kept::axis{})}...);
  }
};
template <template <class, class...> class To, class C, class... Kept, class First, class... B>
struct WithoutPipeline<To, To<C, Kept...>, First, B...>
    : WithoutPipeline<To, std::conditional_t<std::is_same_v<typename First::axis, pp>, To<C, Kept...>, To<C, Kept..., First>>,
                      B...> {};

template <class Context>
struct LayerContexts;
template <class C, class... B>
struct LayerContexts<StepContext<C, B...>> {
  using Step = WithoutPipeline<StepContext, StepContext<C>, B...>;
  using Constructor = WithoutPipeline<Context, Context<C>, B...>;
};
template <class C, class... B>
struct LayerContexts<Context<C, B...>> : LayerContexts<StepContext<C, B...>> {};

/// The types of the contexts that layers get in a model's step and in its construction, from any context of the model.
template <class Context>
using step_context_t = typename LayerContexts<Context>::Step::type;
template <class Context>
using constructor_context_t = typename LayerContexts<Context>::Constructor::type;

template <class Context>
step_context_t<Context> step_context(const Context& context) {
  return LayerContexts<Context>::Step::of(context);
}
template <class Context>
constructor_context_t<Context> constructor_context(const Context& context) {
  return LayerContexts<Context>::Constructor::of(context, context.construction);
}
/// The same from the context of a step of the model.
template <class Context>
constructor_context_t<Context> constructor_context(const step_context_t<Context>& step, const Construction& construction) {
  return LayerContexts<Context>::Constructor::of(step, construction);
}

/// Calls f(communicator) for each axis in force whose ranks have different sequences.
template <class Context, class F>
void for_each_data_axis([[maybe_unused]] const Context& context, [[maybe_unused]] F&& f) {
  Context::for_each_axis([&]<class A>([[maybe_unused]] A axis) {
    if constexpr (is_data_axis<A>) f(context.comm(axis));
  });
}

template <class Context, class A>
auto hidden_placement_of() {
  if constexpr (Context::has(A{})) return typename Context::template bind_t<A>::hidden_placement{};
  else return Absent<A>{};
}

/// The placement of the hidden state on A between blocks: Invariant, or Shard<tp, 0> under sequence parallelism.
template <class Context, Axis A>
using hidden_placement_t = decltype(hidden_placement_of<Context, A>());

/// Whether attention exchanges tokens for heads over cp (Ulysses).
template <class Context>
bool uses_ulysses(const Context& context) {
  return Context::has(cp{}) && context.env.ulysses;
}

}  // namespace detail

}  // namespace weft
