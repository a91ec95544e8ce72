// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parameter of a layer. Its type holds placement rules, each of which applies only if its axis is in force: with Shard<tp, 0>
// it is whole on one rank and cut along dim 0 under tensor parallelism. Initial elements are functions of the global name and the
// global index, so the weights are bitwise the same in every layout.
//
//   Parameter<Shard<tp, 0>> weight(context, "weight", {out, in}, normal(0.02));

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <weft/autograd/proof_note.hpp>
#include <weft/context/context.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/initialise_parameter.hpp>
#include <weft/engine/parameter_sharding.hpp>
#include <weft/engine/registry.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

template <class A, class... R>
struct RuleFor {
  using type = Absent<A>;
};
template <class A, class F, class... R>
struct RuleFor<A, F, R...> {
  using type = typename std::conditional_t<std::is_same_v<typename F::axis, A>, std::type_identity<F>, RuleFor<A, R...>>::type;
};

// The placement of a parameter with these rules as an operand beside a tensor placed as P: its rule's Shard if there is one; else
// Invariant if the tensor's work is done once, Replicated if the ranks divide it.
template <class P, class... Rules>
using used_as_t = std::conditional_t<kind_of<typename RuleFor<typename P::axis, Rules...>::type> == Kind::shard,
                                     typename RuleFor<typename P::axis, Rules...>::type,
                                     std::conditional_t<kind_of<P> == Kind::invariant || kind_of<P> == Kind::partial,
                                                        Invariant<typename P::axis>, Replicated<typename P::axis>>>;

template <class S, class X, class... Rules>
struct UsedForOperand;
template <class S, class T, class E, class... P, class... Rules>
struct UsedForOperand<S, Tensor<T, E, P...>, Rules...> {
  using type = Tensor<S, E, used_as_t<P, Rules...>...>;
};

// The fault of a gradient placed as P for a parameter with these rules. On every axis a gradient must be Shard if and only if the
// parameter is: otherwise it is not marked unreduced, and no wrapper sums it. A data axis sums every gradient it gets.
enum class GradientFault { none, replicated, not_a_shard, another_shard, summed_twice };
template <class P, class... Rules>
constexpr GradientFault fault_on_axis() {
  using A = typename P::axis;
  using Rule = typename RuleFor<A, Rules...>::type;
  if (kind_of<P> == Kind::replicated) return GradientFault::replicated;
  if (kind_of<Rule> == Kind::shard) return std::is_same_v<P, Rule> ? GradientFault::none : GradientFault::not_a_shard;
  if (kind_of<P> == Kind::shard || overlaps<P>) return GradientFault::another_shard;
  if (kind_of<P> == Kind::invariant && (std::is_same_v<A, dp> || std::is_same_v<A, edp>)) return GradientFault::summed_twice;
  return GradientFault::none;
}

// The axes over which a gradient is unreduced, by its type.
template <class Gradient, class... Rules>
struct UnreducedAxes;
template <class T, class E, class... P, class... Rules>
struct UnreducedAxes<Tensor<T, E, P...>, Rules...> {
  static constexpr GradientFault fault = [] {
    GradientFault first = GradientFault::none;
    ((first == GradientFault::none ? void(first = fault_on_axis<P, Rules...>()) : void()), ...);
    return first;
  }();
  static constexpr unsigned axes = (axis_bit<typename P::axis> | ... | 0u);
  static constexpr unsigned partial = ((kind_of<P> == Kind::partial ? axis_bit<typename P::axis> : 0u) | ... | 0u);
};

template <class A>
inline constexpr bool may_shard_parameters = std::is_same_v<A, tp> || std::is_same_v<A, cp> || std::is_same_v<A, etp>;
template <class... R>
constexpr bool axes_differ() {
  const int ids[] = {R::axis::id..., axis_count};
  for (std::size_t i = 0; i < sizeof...(R); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (ids[i] == ids[j]) return false;
  return true;
}

// Allocates a parameter's values and initialises them.
template <class T, class Context>
WEFT_COLD void make_parameter(const Context& context, ParameterState& state) {
  bool taken = false;
  for (auto* hooks : context.engine.hooks) taken = hooks->allocate(state) || taken;
  if (state.info().later & ~state.sharded()) state.storage().count_elsewhere();
  if (taken) return;
  state.storage().set_value(context.device().allocate_persistent(state.bytes(), MemoryCategory::parameters));
  initialise_parameter<T>(context.device(), state, context.env.seed);
}

[[noreturn]] void refuse_axes(const ParameterState& state, unsigned axes);

// The base of all parameters, whatever their rules. A copy that is made while a model is built registers itself: the unit under
// construction uses the parameter. Copies and destructor are out of line, since each copy of a model part has a dozen of them.
class ParameterHandle {
 public:
  ParameterHandle();
  ParameterHandle(const ParameterHandle& other);
  ParameterHandle(ParameterHandle&& other) noexcept;
  ParameterHandle& operator=(ParameterHandle other) noexcept;
  ~ParameterHandle();

  ParameterState& state() { return *state_; }
  const ParameterState& state() const { return *state_; }
  /// False if the parameter is frozen: a layer's backward_weight may leave its gradient out.
  bool trainable() const { return state_->trainable(); }

 protected:
  void require_usable(DataType beside) const;
  void require_gradient(const Shape& shape, DataType type) const;
  void make_state(ParameterInfo&& info);

  std::shared_ptr<ParameterState> state_;
};

/// Whether a kernel's addition to a gradient is the first one, as a bool that notes that a kernel has looked.
class FirstAddition {
 public:
  FirstAddition(bool first, GradientState* of) : of_(of), first_(first) {
    if (of_ != nullptr) of_->open();
  }
  KOKKOS_FUNCTION operator bool() const {
    KOKKOS_IF_ON_HOST((if (of_ != nullptr) of_->look();))
    return first_;
  }

 private:
  GradientState* of_;
  bool first_;
};

}  // namespace detail

namespace operations {
// Argument-dependent lookup finds operations on Parameters here.
struct ForOperations {};
}  // namespace operations

/// A parameter with a rule, Shard<axis, dim>, for each axis that may cut it (tp, cp or etp). Copies are handles of one parameter.
template <class... Rules>
class Parameter : public detail::ParameterHandle,
                  public detail::MembersElsewhere<Parameter<Rules...>>,
                  operations::ForOperations {
 public:
  // Refuses a mesh or a world in place of the context (parallel/nesting.hpp).
  template <class Place>
  requires(!requires { typename Place::scalar; }) Parameter(const Place& place, const std::string& name, Shape shape,
                                                            const InitialValues& initial, const ParameterSharding& cut = {})
      : Parameter(place / name, name, shape, initial, cut) {}
  /// `shape` is the whole parameter's. Throws LayoutError if a dim that a rule cuts is not divisible as `cut` requires,
  /// ShapeError if the initial values need a fan that the shape does not have.
  template <class Context>
  WEFT_COLD Parameter(const Context& context, const std::string& name, Shape shape, const InitialValues& initial,
                      const ParameterSharding& cut = {}) {
    using T = typename Context::scalar;
    // Here and not in the class: a compiler would drop the class's members with a second error.
    constexpr bool shards = ((detail::kind_of<Rules> == detail::Kind::shard) && ...),
                   allowed = (detail::may_shard_parameters<typename Rules::axis> && ...),
                   differ = detail::axes_differ<Rules...>();
    static_assert(
        shards, "weft: Parameter's template parameters must be rules, Shard<axis, dim>: where it has none, a parameter is whole");
    static_assert(!shards || allowed,
                  "weft: a Parameter's rule must be for tp, cp or etp: data ranks share parameters out by "
                  "FullyShardedDataParallel, pp and ep hold different ones");
    static_assert(!shards || !allowed || differ,
                  "weft: a Parameter has two rules for one axis: a rank holds one piece of it, so keep one Shard<axis, dim>");
    static_assert(!differ || (std::size_t(Context::places(typename Rules::axis{})) + ... + 0u) <= 1,
                  "weft: a Parameter has rules for two axes that are in force here: it is cut along one; keep the rule of the "
                  "axis that is larger");
    ParameterInfo info;
    info.name = detail::construction_of(context / name).path;
    info.axes = Context::placed;
    info.global = info.local = shape;
    info.type = data_type_of<T>;
    info.gradient_type = data_type_of<accumulate_t<T>>;
    info.initial = detail::values_for(initial, shape, info.name);
    info.runs = {{0, 0, shape.size()}};
    [[maybe_unused]] const auto apply = [&]<class A, int Dim>(std::type_identity<Shard<A, Dim>>) {
      if (cut.segments.size() > 1) {
        info.segments.clear();
        for (const ParameterSharding::Segment& segment : cut.segments) info.segments.push_back(segment.extent);
        info.segment_dim = Dim;
      }
      if constexpr (Context::places(A{})) {
        info.sharded |= axis_bit<A>;
        info.cut = {A::name, context.size(A{}), std::size_t(Dim), cut};
        if (info.cut.ranks > 1) detail::shard_parameter(info, Dim, cut, A::name, info.cut.ranks, context.rank(A{}));
      }
    };
    (apply(std::type_identity<Rules>{}), ...);
    if constexpr (Context::places(edp{})) info.expert_data = context.comm(edp{});
    Context::for_each_axis([&]<class A>(A axis) {
      // A pipeline stage has different parameters; on every other axis a parameter that is not cut is the same on all ranks.
      if (!std::is_same_v<A, pp> && context.rank(axis) != 0) info.later |= axis_bit<A>;
      if (A::id >= axis_count) info.user_axes.push_back({axis_bit<A>, A::name});
    });
    make_state(std::move(info));
    detail::Registry* const registry = detail::construction_of(context).registry;
    if (registry == nullptr || !registry->add(state_)) detail::make_parameter<T>(context, *state_);
  }
  // Every other call.
  template <bool Refused = true>
  explicit Parameter(detail::AnyArgument = {}, detail::AnyArgument = {}, detail::AnyArgument = {}, detail::AnyArgument = {},
                     detail::AnyArgument = {}, detail::AnyArgument = {}) {
    static_assert(
        !Refused,
        "weft: a Parameter is made in the constructor of its layer, from the context, its name, its whole shape and its "
        "initial values: `weight(context, \"weight\", {out, in}, normal(0.02))`; the others are zeros, ones, uniform, "
        "kaiming_uniform and their kind (engine/initial_values.hpp)");
  }

  /// The parameter as an operand beside x, placed according to x's placements and the rules.
  template <AnyTensor X>
  auto for_operand(const X& x) const {
    if constexpr (detail::proves_results)
      if (detail::Proof* const proof = x.device().proof(); proof != nullptr) proof->use_parameter(state().name());
    return for_operand_type<X>(x.device());
  }
  /// The same for a tensor of type X that does not exist yet.
  template <AnyTensor X>
  auto for_operand_type(typename X::device_type& device) const {
    return as<typename detail::UsedForOperand<typename X::value_type, X, Rules...>::type>(device);
  }
  /// The same for a tensor that is not Real (token ids): the element type comes from the context.
  template <class Context, AnyTensor X>
  auto for_operand(const Context&, const X& x) const {
    return as<typename detail::UsedForOperand<typename Context::scalar, X, Rules...>::type>(x.device());
  }

  /// The memory to which a kernel adds a gradient of type Gradient.
  template <class A>
  struct OpenGradient {
    A* data;                      ///< local.size() elements
    detail::FirstAddition first;  ///< overwrite instead of add: no gradient is there yet
    detail::Buffer unused;        ///< holds `data` if another rank counts this addition, or if the parameter is frozen
  };
  /// For kernels that add in place; other layers call accumulate. Marks the axes over which the gradient is unreduced. Throws
  /// ShapeError if an axis in force for the parameter is not in Gradient.
  template <AnyTensor Gradient>
  auto open_gradient(typename Gradient::device_type& device) {
    using UnreducedAxes = detail::UnreducedAxes<Gradient, Rules...>;
    using enum detail::GradientFault;
    static_assert(UnreducedAxes::fault != replicated,
                  "weft: this parameter's gradient is Replicated, so the sum over the axis would count it several times: bring "
                  "it to Invariant or Partial first");
    static_assert(UnreducedAxes::fault != another_shard,
                  "weft: this parameter's gradient is Shard on an axis (or along a dim) on which the parameter has no such rule, "
                  "so each rank keeps the sum over its own part, and the parts are never added up: add up over rows or heads "
                  "with sum_rows(g), whose result is Partial there, or give the parameter the rule Parameter<Shard<axis, dim>>");
    static_assert(UnreducedAxes::fault != not_a_shard,
                  "weft: this parameter is cut by its rule Shard<axis, dim>, but its gradient is not that Shard: a rank's "
                  "gradient is of the piece that it holds");
    static_assert(UnreducedAxes::fault != summed_twice,
                  "weft: this parameter's gradient is Invariant on the data axis, which sums it once more: leave it Partial (do "
                  "not reduce over dp), or to<Partial<dp>>(context, gradient)");
    auto& state = *state_;
    if (UnreducedAxes::axes != state.info().axes) detail::refuse_axes(state, UnreducedAxes::axes);
    using A = accumulate_t<typename Gradient::value_type>;
    if (!state.trainable()) {  // the kernel's sum is not used; a layer that asks trainable() first saves the work
      detail::Buffer unused = device.allocate(state.gradient_bytes());
      A* data = static_cast<A*>(unused.get());
      return OpenGradient<A>{data, {true, nullptr}, std::move(unused)};
    }
    detail::open_layer_gradient(device, state);
    detail::GradientState& gradients = state.gradients();
    const auto addition = gradients.add(UnreducedAxes::axes & ~UnreducedAxes::partial, UnreducedAxes::partial,
                                        state.info().sharded, state.info().later);
    if (addition.zero_first) detail::fill_gradient(device, state);
    if (addition.elsewhere) {
      detail::Buffer unused = device.allocate(state.gradient_bytes());
      A* data = static_cast<A*>(unused.get());
      return OpenGradient<A>{data, {true, nullptr}, std::move(unused)};
    }
    if (state.info().replicas > 1) gradients.mark_unreduced(axis_bit<tp>);
    return OpenGradient<A>{static_cast<A*>(gradients.layer_buffer().get()), {gradients.take_fresh(), &gradients}, nullptr};
  }

  /// Adds a gradient; without effect if the parameter is frozen. On every axis in force it must be Shard if the parameter has
  /// that rule; else Invariant (the whole gradient, the same on every rank) or Partial (a term of a sum); on dp Partial. A
  /// Partial gradient is marked unreduced on its axis, whose wrapper reduces it.
  template <class Context, class T, class E, class... P>
  void accumulate(const Context&, const Tensor<T, E, P...>& gradient) {
    using A = accumulate_t<T>;
    static_assert((Context::placed & ~detail::UnreducedAxes<Tensor<T, E, P...>, Rules...>::axes) == 0,
                  "weft: this parameter's gradient has no placement on an axis that is in force, so the axes over which it must "
                  "still be summed are unknown: compute it with operations on placed tensors, such as sum_rows(g), "
                  "or label a kernel's result with every axis");
    require_gradient(gradient.shape(), data_type_of<A>);
    if (!trainable()) return;
    const auto open = this->template open_gradient<Tensor<T, E, P...>>(gradient.device());
    if (open.first) kernels::cast<T, A>(gradient.device(), gradient.size(), gradient.data(), open.data);
    else kernels::accumulate<T, A>(gradient.device(), gradient.size(), gradient.data(), open.data);
  }

 private:
  template <class W>
  W as(typename W::device_type& device) const {
    require_usable(data_type_of<typename W::value_type>);
    return W(device, state_->local(), state_->storage().layer_value());
  }
};

/// Replaces a parameter whose template arguments are no rules, so that there is one error.
template <class... Rules>
requires(!(Placement<Rules> && ...)) class Parameter<Rules...> : public Parameter<> {
 public:
  template <class Context>
  Parameter(const Context& context, const std::string& name, Shape shape, const InitialValues& initial,
            const ParameterSharding& cut = {})
      : Parameter<>(context, name, std::move(shape), initial, cut) {
    // Here and not in the class: a compiler would drop the class's members with a second error.
    static_assert(sizeof(Context) == 0,
                  "weft: Parameter's template parameters must be rules, Shard<axis, dim>, such as Parameter<Shard<tp, 0>>: an "
                  "axis alone does not name the dim that it cuts; without a rule a parameter is whole");
  }
};

namespace detail {

/// In place of Parameter(context, name, shape) on a rank without the parameter: registers its name and shape only.
template <class Context>
void parameter_elsewhere(const Context& context, std::string_view name, const Shape& shape) {
  if (auto* const registry = construction_of(context).registry)
    registry->add_elsewhere(construction_of(context / name).path, shape);
}

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/autograd/parameter_impl.hpp>
#endif
