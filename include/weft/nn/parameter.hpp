// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parameter of a layer. Its type holds rules, how it lies on an axis *if* that axis is in force: Parameter<Shard<tp, 0>> is
// whole on one rank and cut along dim 0 under tensor parallelism. Elements are drawn by global name and global index, so the
// weights are bitwise the same in every layout.
//
//   Parameter<Shard<tp, 0>> weight(context, "weight", {out, in}, normal(0.02));

#include <memory>
#include <string>
#include <utility>

#include <weft/core/owner.hpp>
#include <weft/core/philox.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/random.hpp>
#include <weft/nn/context.hpp>
#include <weft/nn/cut.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

template <class A, class... R>
struct RuleFor { using type = Absent<A>; };
template <class A, class F, class... R>
struct RuleFor<A, F, R...> {
  using type = typename std::conditional_t<std::is_same_v<typename F::axis, A>, std::type_identity<F>, RuleFor<A, R...>>::type;
};

// How a parameter with these rules lies beside a tensor placed as P: as its rule says; else it is used once where the tensor
// is, and by every rank's part where the tensor's work is divided.
template <class P, class... Rules>
using used_as_t = std::conditional_t<
    kind_of<typename RuleFor<typename P::axis, Rules...>::type> == Kind::shard, typename RuleFor<typename P::axis, Rules...>::type,
    std::conditional_t<kind_of<P> == Kind::invariant || kind_of<P> == Kind::partial, Invariant<typename P::axis>, Replicated<typename P::axis>>>;

template <class S, class X, class... Rules>
struct UsedBeside;
template <class S, class T, class E, class... P, class... Rules>
struct UsedBeside<S, Tensor<T, E, P...>, Rules...> { using type = Tensor<S, E, used_as_t<P, Rules...>...>; };

// What a gradient owes, by its type.
template <class Gradient>
struct Debts;
template <class T, class E, class... P>
struct Debts<Tensor<T, E, P...>> {
  static constexpr bool countable = ((kind_of<P> != Kind::replicated) && ...);
  static constexpr unsigned partial = ((kind_of<P> == Kind::partial ? axis_bit<typename P::axis> : 0u) | ... | 0u);
};

// The initial values of the elements that the rank keeps; padding is zero.
template <class T, class Exec>
WEFT_COLD void initialise_parameter(Device<Exec>& device, const ParameterState& state, std::uint64_t seed) {
  T* data = static_cast<T*>(state.value.get());
  std::size_t held = 0;
  for (const Run& run : state.runs) held += run.length;
  if (held != state.kept()) kernels::fill<T>(device, state.kept(), data, T(0.0f));
  for (const Run& run : state.runs) {
    if (state.initial.kind == Initial::Kind::constant) kernels::fill<T>(device, run.length, data + run.local, T(float(state.initial.value)));
    else kernels::initialise_normal<T>(device, 1, run.length, data + run.local, key_of(seed, site_of(state.name)), 0, run.global, 0, 0.0, state.initial.value);
  }
}

// What every parameter is, whatever its rules: copies and ends out of line, since a model's chunks have a dozen at each of theirs.
class ParameterHandle {
 public:
  WEFT_OUT_OF_LINE ParameterHandle() : state_(new_shared<ParameterState>()) {}
  WEFT_OUT_OF_LINE ParameterHandle(const ParameterHandle& other) noexcept : state_(other.state_) {}
  WEFT_OUT_OF_LINE ParameterHandle(ParameterHandle&& other) noexcept : state_(std::move(other.state_)) {}
  WEFT_OUT_OF_LINE ParameterHandle& operator=(ParameterHandle other) noexcept {
    state_.swap(other.state_);
    return *this;
  }
  WEFT_OUT_OF_LINE ~ParameterHandle() {}

  ParameterState& state() { return *state_; }
  const ParameterState& state() const { return *state_; }

 protected:
  WEFT_OUT_OF_LINE void require_usable(DataType beside) const {
    if (beside != state_->type)
      throw_error<ShapeError>({"parameter ", state_->name, " holds ", name_of(state_->type), ", used beside a tensor of ", name_of(beside)});
    if (!state_->layer_value()) throw_error<Error>({"parameter ", state_->name, " is used while it is released"});
  }
  WEFT_OUT_OF_LINE void require_gradient(const Shape& shape, DataType type) const {
    if (shape.size() != state_->size())
      throw_error<ShapeError>({"gradient ", shape.text(), " of parameter ", state_->name, " ", state_->local.text()});
    if (type != state_->gradient_type) throw_error<ShapeError>({"gradient of parameter ", state_->name, " in another element type"});
  }

  std::shared_ptr<ParameterState> state_;
};

}  // namespace detail

template <Placement... Rules>
class Parameter : public detail::ParameterHandle {
 public:
  /// Shape is the whole parameter's. Dims cut by a rule must be divisible as `cut` says, else LayoutError.
  template <class Context>
  WEFT_COLD Parameter(const Context& context, const std::string& name, Shape shape, Initial initial, const Cut& cut = {}) {
    using T = typename Context::scalar;
    auto& state = *state_;
    state.name = (context / name).env.path;
    state.global = state.local = shape;
    state.type = data_type_of<T>;
    state.gradient_type = data_type_of<accumulate_t<T>>;
    state.initial = initial;
    state.runs = {{0, 0, shape.size()}};
    [[maybe_unused]] const auto apply = [&]<class A, int Dim>(std::type_identity<Shard<A, Dim>>) {
      if constexpr (Context::places(A{})) {
        state.sharded |= axis_bit<A>;
        if (context.size(A{}) > 1) detail::cut_parameter(state, Dim, cut, A::name, context.size(A{}), context.rank(A{}));
      }
    };
    (apply(std::type_identity<Rules>{}), ...);
    if constexpr (Context::places(edp{})) state.expert_data = context.comm(edp{});
    bool taken = false;
    for (auto* hooks : context.env.hooks) taken = hooks->allocate(state) || taken;
    Context::for_each_axis([&]<class A>(A axis) {
      // A pipeline stage has parameters of its own; on every other axis a parameter that is not cut is the same on all ranks.
      if (!std::is_same_v<A, pp> && !(state.sharded & axis_bit<A>) && context.rank(axis) != 0) state.counted = false;
    });
    if (taken) return;
    state.value = context.device().allocate_lasting(state.bytes());
    detail::initialise_parameter<T>(context.device(), state, context.env.seed);
  }

  /// The parameter as an operation on x needs it, its placements derived from x's and from the rules.
  template <AnyTensor X>
  auto beside(const X& x) const {
    return beside_type<X>(x.device());
  }
  /// The same beside a tensor of type X that does not exist yet.
  template <AnyTensor X>
  auto beside_type(typename X::device_type& device) const {
    return as<typename detail::UsedBeside<typename X::value_type, X, Rules...>::type>(device);
  }
  /// The same beside a tensor that is not Real (token ids): the element type comes from the context.
  template <class Context, AnyTensor X>
  auto beside(const Context&, const X& x) const {
    return as<typename detail::UsedBeside<typename Context::scalar, X, Rules...>::type>(x.device());
  }

  /// Where a kernel may add a gradient of type Gradient itself.
  template <class A>
  struct OpenGradient {
    A* data;     ///< local.size() elements
    bool first;  ///< overwrite instead of add: nothing is there yet
  };
  /// For kernels that add in place; others call accumulate. Marks what the gradient owes.
  template <AnyTensor Gradient>
  auto open_gradient(typename Gradient::device_type& device) {
    using Debts = detail::Debts<Gradient>;
    static_assert(Debts::countable,
                  "weft: this parameter's gradient is Replicated, so the sum over the axis would count it several times: bring it to Invariant "
                  "or Partial first");
    auto& state = *state_;
    open_layer_gradient(device, state);
    state.pending |= Debts::partial;
    if (state.replicas > 1) state.pending |= axis_bit<tp>;
    using A = accumulate_t<typename Gradient::value_type>;
    return OpenGradient<A>{static_cast<A*>(state.layer_gradient().get()), std::exchange(state.fresh, false)};
  }

  /// Adds a gradient. It must be Shard, Invariant or Partial on every axis; a Partial one leaves a debt on its axis that the
  /// axis' wrapper pays.
  template <class Context, class T, class E, class... P>
  void accumulate(const Context&, const Tensor<T, E, P...>& gradient) {
    using A = accumulate_t<T>;
    require_gradient(gradient.shape(), data_type_of<A>);
    const auto open = this->template open_gradient<Tensor<T, E, P...>>(gradient.device());
    if (open.first) kernels::cast<T, A>(gradient.device(), gradient.size(), gradient.data(), open.data);
    else kernels::accumulate<T, A>(gradient.device(), gradient.size(), gradient.data(), open.data);
  }

 private:
  template <class W>
  W as(typename W::device_type& device) const {
    require_usable(data_type_of<typename W::value_type>);
    return W(device, state_->local, state_->layer_value());
  }
};

}  // namespace weft
