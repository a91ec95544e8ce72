// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layers and operations with a backward of their own, called in a Module's forward. A layer has forward(context, x) and backward
// (autograd/layer.hpp); an operation without parameters has forward(x...) and gradient(g, x...), both on tensors:
//
//   struct Cube : Primitive<Cube> {
//     auto forward(const auto& x) const { return times(times(x, x), x); }
//     auto gradient(const auto& g, const auto& x) const { return scale(times(g, square(x)), 3); }
//   };
//   auto forward(const auto& x) const { return norm(Cube()(x)); }   // in a Module
//
// Both may add formula(x...), their forward made of operations on Variables, by which grad(f, x) differentiates them
// (operations/grad.hpp).

#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/child_tape.hpp>
#include <weft/autograd/layer.hpp>
#include <weft/autograd/recorded_layer.hpp>
#include <weft/autograd/struct_value.hpp>
#include <weft/autograd/variable.hpp>

namespace weft {

namespace detail {

template <class G, std::size_t n>
inline constexpr bool is_gradient_tuple = false;
template <class... G, std::size_t n>
inline constexpr bool is_gradient_tuple<std::tuple<G...>, n> = sizeof...(G) == n;

// The call of an operation with forward(x...) and gradient(g, x...).
template <class Context, class F, class Y, class... X>
struct RecordedOperation : TapeStep, ValueNode<Y> {
  RecordedOperation(const F& of, const Variable<Context, X>&... x) : f(of), nodes(x.node()...), values(x.value()...) {}
  void apply(Tape& tape) {
    if (!*this) return;
    const auto g = this->take();
    auto gradients = std::apply([&](const X&... x) { return f.gradient(g, x...); }, values);
    note_result<F>(tape.context().as<Context>(), gradients);
    constexpr bool one = sizeof...(X) == 1, several = is_gradient_tuple<decltype(gradients), sizeof...(X)>;
    static_assert(one || several,
                  "weft: this Primitive's gradient(g, x...) of several operands returns something else than a std::tuple of as "
                  "many gradients: `return std::tuple{dx, dy};`, Nothing{} for an operand without one; see F in this class's "
                  "template arguments");
    const Context& context = tape.context().as<Context>();
    if constexpr (one) detail::give(context, std::get<0>(nodes), std::move(gradients));
    else if constexpr (several) detail::give(context, nodes, std::move(gradients));
  }
  F f;
  std::tuple<ValueNode<X>*...> nodes;
  std::tuple<X...> values;
};

// Refuses other inputs than the first whose gradient would be lost.
template <class... Others>
constexpr bool require_constants() {
  constexpr bool constants = (is_constant<Others> && ...);
  static_assert(constants,
                "weft: a layer's backward gives the gradient of its first input, and another input of this call is a Variable of "
                "real numbers, whose gradient would be lost: give the layer a tuple of both, layer(std::tuple(x, y)), write an "
                "operation with gradient(g, x, y), or make it a constant, layer(x, y.detach())");
  return constants;
}

// Refuses the call of a layer as a function with other arguments than Variables.
template <class... V>
constexpr void refuse_arguments() {
  static_assert(
      (is_refused<V> || ...) || (std::is_base_of_v<AlreadyRefused, V> || ...),
      "weft: in a Module's forward a layer is called with Variables, the arguments of `auto forward(const auto& x) const` "
      "and the results of operations; tensors go to forward(layer, context, x), in a layer with a backward of its own; see V "
      "in this function's template arguments");
}

// A value inside of grad(f, x).
template <class V>
inline constexpr bool is_nested_variable = false;
template <class C, class X>
inline constexpr bool is_nested_variable<Variable<C, X>> = is_variable<X>;
// A layer or an operation on values inside of grad(f, x): its formula(x...), made of operations.
template <class L, class... V>
auto formula_of(const L& layer, const V&... x) {
  constexpr bool has_formula = requires { layer.formula(x...); };
  static_assert(
      has_formula,
      "weft: grad(f, x): f calls a layer or a Primitive with a backward of its own on tensors, which has no second "
      "derivative: give it `auto formula(const auto& x) const`, its forward made of operations on Variables, or write it "
      "as a Module, matmul(x, weight) + bias; see L in this function's template arguments");
  if constexpr (has_formula) return layer.formula(x...);
  else return AlreadyRefused();
}

template <class V>
inline constexpr bool is_call_input = is_variable<V> || StructOfVariables<V>;
template <class... V>
inline constexpr bool is_call_input<std::tuple<V...>> = (is_call_input<V> && ...);

}  // namespace detail

/// The call of an operation with forward(x...) and gradient(g, x...) on tensors, of which gradient returns that of its operand,
/// or of several operands a std::tuple, Nothing{} for one without.
template <class F, class Context, class... X>
requires(detail::IsOperation<F>) auto call(const F& f, const Variable<Context, X>&... x) {
  if constexpr ((detail::is_variable<X> || ...)) {
    return detail::formula_of(f, x...);
  } else {
    detail::Tape& tape = std::get<0>(std::tie(x...)).tape();
    auto y = f.forward(x.value()...);
    detail::note_result<F>(tape.context().as<Context>(), y);
    using Y = decltype(y);
    if (!tape.records() || !(x.has_gradient() || ...)) return Variable<Context, Y>(std::move(y), tape);
    auto& node = tape.record<detail::RecordedOperation<Context, F, Y, X...>>(f, x...);
    return Variable<Context, Y>(std::move(y), &node, tape);
  }
}

/// The call of any layer in a Module's forward. The first input, a Variable or a tuple of them, receives the gradient that the
/// layer's backward returns; other inputs are whole numbers, a whole batch, or detached. The layer must be a part of the
/// Module, since backward calls it again.
template <class L, class V, class... Others>
requires(!detail::IsOperation<L> && detail::is_call_input<V> &&
         (AnyVariable<Others> && ...)) auto call(const L& layer, const V& x, const Others&... others) {
  if constexpr (detail::IsModule<L>) {
    if constexpr (detail::is_variable<V> || detail::StructOfVariables<V>) return layer(x, others...);
    else return std::apply([&](const auto&... one) { return layer(one..., others...); }, x);
  } else if constexpr (detail::is_nested_variable<std::remove_cvref_t<decltype(detail::first_variable(x))>>) {
    return detail::formula_of(layer, x, others...);
  } else if constexpr (!detail::require_constants<Others...>()) {
    return detail::AlreadyRefused();
  } else {
    detail::Tape& tape = detail::first_variable(x).tape();
    using Context = typename std::remove_cvref_t<decltype(detail::first_variable(x))>::context_type;
    using X = decltype(detail::values_of(x));
    if constexpr (!detail::Forwards<L, Context, X, typename Others::tensor_type...>) {
      return detail::refuse_forward<L, Context, X, typename Others::tensor_type...>().output;
    } else {
      detail::LayerCall<Context> recording(tape, &detail::layer_kind<L>);
      return recording.record(layer, detail::nodes_of(x),
                              weft::forward(layer, tape.context().as<Context>(), detail::values_of(x), others.value()...));
    }
  }
}

/// The base class of layers and operations that are called as functions in a Module's forward: norm(x).
template <class Self>
struct Primitive {
  template <class V, class... Others>
  requires(detail::is_call_input<V> && (AnyVariable<Others> && ...)) auto operator()(const V& x, const Others&... others) const {
    return call(static_cast<const Self&>(*this), x, others...);
  }
  template <class... V>
  detail::AlreadyRefused operator()(const V&...) const {
    detail::refuse_arguments<V...>();
    return {};
  }

  template <class... Others>
  detail::AlreadyRefused operator()(detail::AlreadyRefused refused, const Others&...) const {
    return refused;
  }

  // An operation as a layer of its own, in Sequential or check_layer.
  template <class Context, class... X, class G, class Operation = Self>
  requires detail::IsOperation<Operation>
  auto backward(const Context&, std::tuple<X...> saved, const G& g) const {
    auto gradients = std::apply([&](const X&... x) { return static_cast<const Self&>(*this).gradient(g, x...); }, saved);
    if constexpr (sizeof...(X) == 1) return gradients;
    else return std::get<0>(std::move(gradients));
  }
};

}  // namespace weft
