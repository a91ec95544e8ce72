// SPDX-License-Identifier: Apache-2.0
#pragma once
// Derivatives inside of a forward: grad(f, x) is the derivative of the sum of f(x) by x, as a Variable that is differentiated
// again by backward, or by another grad: forces of a potential, residuals of a differential equation.
//
//   auto forward(const auto& positions, const auto& batch) const {
//     auto [energies, slopes] = value_and_grad([&](const auto& p) { return energy(p, batch); }, positions);
//     return sum_losses(sum<1>(square(-slopes - batch[forces])));
//   }
//   auto [by_positions, by_cell] = grad([&](const auto& p, const auto& c) { return energy(p, c); }, positions, cell);

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <weft/autograd/child_tape.hpp>
#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/recorded_layer.hpp>
#include <weft/autograd/tape.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/operations/differentiable_choices.hpp>
#include <weft/operations/differentiable_convolution.hpp>
#include <weft/operations/differentiable_functions.hpp>
#include <weft/operations/differentiable_parts.hpp>
#include <weft/operations/differentiable_products.hpp>
#include <weft/operations/differentiable_sums.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

namespace detail {

/// The gradient of the sum of all elements of a Y: ones, of which each counts once over all ranks.
template <class Y>
struct Ones;
template <class T, class E, class... P>
struct Ones<Tensor<T, E, P...>> {
  using whole = Tensor<T, E, std::conditional_t<kind_of<P> == Kind::shard, P, Invariant<typename P::axis>>...>;
  template <class Context>
  static auto like(const Context& context, const Tensor<T, E, P...>& y) {
    require_counted_once("grad", y.shape(), Of::values);
    whole ones(y.device(), y.shape());
    kernels::fill(y.device(), ones.size(), ones.data(), T(1));
    return to_layout_of<gradient_t<Tensor<T, E, P...>>>(context, std::move(ones));
  }
};

/// Whether y is the value of one Variable on the level of grad's argument.
template <class Argument, class Y>
inline constexpr bool is_differentiated = false;
template <class C, class X, class Y>
inline constexpr bool is_differentiated<Variable<C, X>, Variable<C, Y>> = levels<X> == levels<Y>&& AnyTensor<bottom_t<Y>>;

template <class X>
constexpr bool require_differentiable() {
  constexpr bool real =
      is_tensor<X> && (std::is_same_v<typename X::value_type, double> || std::is_same_v<typename X::value_type, float>);
  static_assert(real,
                "weft: grad(f, x): x must hold float or double: whole numbers have no derivative, and differences of 16-bit "
                "numbers are too coarse for one");
  return real;
}

/// The value and the derivatives of a call that was refused, by a first and these further arguments.
template <class... X>
auto refused_derivatives() {
  return std::tuple(AlreadyRefused(), AlreadyRefused(), std::conditional_t<true, AlreadyRefused, X>()...);
}
/// A derivative of zeros, if f(x...) does not depend on x.
template <class Node, class C, class X>
auto derivative_of(Node& node, const C& context, const Variable<C, X>& x) {
  if (!node) node.add(context, constant_at(x, zero_gradient<bottom_t<X>>(bottom_of(x).device(), x.shape())));
  return node.take();
}
}  // namespace detail

/// f(x, ...) and its derivatives by x and by each further argument, as a std::tuple.
template <class F, class C, class X, class... More>
auto value_and_grad(F&& f, const Variable<C, X>& x, const Variable<C, More>&... more) {
  using Inner = Variable<C, Variable<C, X>>;
  constexpr bool value = detail::is_operand<std::remove_cvref_t<F>>,
                 one_level = ((detail::levels<More> == detail::levels<X>)&&...);
  static_assert(!value,
                "weft: grad(f, x): f is a value and no function; a value that is computed already is not differentiated: write "
                "grad([&](const auto& p) { return energy(p); }, x)");
  static_assert(
      one_level,
      "weft: grad(f, x, y): one argument is inside of another grad than the other: differentiate by values of one forward");
  if constexpr (value || !one_level || !detail::require_differentiable<detail::bottom_t<X>>() ||
                !(detail::require_differentiable<detail::bottom_t<More>>() && ...)) {
    return detail::refused_derivatives<More...>();
  } else {
    const C& context = x.context();
    detail::ChildCall call(x.tape(), &detail::layer_kind<std::remove_cvref_t<F>>);
    const auto tape = detail::make_tape(context, true);
    std::tuple<detail::ValueNode<Variable<C, X>>, detail::ValueNode<Variable<C, More>>...> nodes;
    // Not std::apply: an error inside of f would be followed by those of its checks.
    const auto called = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return f(Inner(Variable<C, X>(x), &std::get<0>(nodes), *tape),
               Variable<C, Variable<C, More>>(detail::raised(x, more), &std::get<I + 1>(nodes), *tape)...);
    };
    const auto y = called(std::index_sequence_for<More...>());
    using Y = std::remove_cvref_t<decltype(y)>;
    constexpr bool fits = detail::is_refused<Y> || detail::is_differentiated<Inner, Y>;
    static_assert(fits,
                  "weft: grad(f, x): f must return one value that it computes from its argument by operations, such as an "
                  "energy or the outputs of a network; see Y in this function's template arguments");
    if constexpr (detail::is_refused<Y> || !fits) {
      return detail::refused_derivatives<More...>();
    } else {
      using Value = std::remove_cvref_t<decltype(y.value())>;
      if (y.node() != nullptr) {
        y.node()->add(context,
                      detail::constant_at(y.value(), detail::Ones<detail::bottom_t<Value>>::like(context, detail::bottom_of(y))));
        tape->backward(context);
      }
      auto derivatives = std::apply(
          [&](auto& node, auto&... others) {
            return std::tuple(detail::derivative_of(node, context, x), detail::derivative_of(others, context, more)...);
          },
          nodes);
      call.end();
      return std::tuple_cat(std::tuple(Value(y.value())), std::move(derivatives));
    }
  }
}

/// The derivative of the sum of all elements of f(x), over all ranks, by x; shaped as x and placed as its dual (a Replicated x
/// has a Partial derivative). f takes and returns a Variable; it may call Modules, use parameters, and capture values of the
/// forward, which are constants to this derivative and not to backward. If row i of f(x) depends on row i of x only, row i of the
/// result is that row's derivative. A derivative of a derivative is grad of a function that calls grad. Zero if f(x) does not
/// depend on x. float or double. Operations without a second derivative do not compile. Throws LayoutError if several ranks hold
/// the same elements of f(x) as parts. Numerics: each rule is a formula of operations, equal to PyTorch's up to rounding.
/// PyTorch: torch.autograd.grad(f(x).sum(), x, create_graph=True). JAX: grad.
template <class F, class C, class X>
auto grad(F&& f, const Variable<C, X>& x) {
  return std::get<1>(value_and_grad(std::forward<F>(f), x));
}
/// The derivatives of f(x, y, ...) by each argument, as a std::tuple, from one backward. JAX: grad with argnums.
template <class F, class C, class X, class Y, class... More>
auto grad(F&& f, const Variable<C, X>& x, const Variable<C, Y>& y, const Variable<C, More>&... more) {
  return std::apply([](const auto&, const auto&... derivative) { return std::tuple(derivative...); },
                    value_and_grad(std::forward<F>(f), x, y, more...));
}
template <class F>
detail::AlreadyRefused grad(F&&, detail::AlreadyRefused refused) {
  return refused;
}

}  // namespace weft
