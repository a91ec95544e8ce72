// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions of each element, with their gradients: the ones of elementwise.hpp (exp, log, sqrt, square, tanh, sigmoid),
// activation functions, the larger of two, and a choice between two. None but `where` takes a Partial tensor, whose ranks hold
// only terms.
//
//   auto y = silu(x);
//   auto dx = silu_gradient(x, g);

#include <type_traits>

#include <weft/kernels/functions.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/comparisons.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {
/// The number at every place of x.
template <class X>
X number_like(const X& x, double number) {
  require_number_fits<X>();
  X out(x.device(), x.shape());
  kernels::fill(x.device(), x.size(), out.data(), typename X::value_type(number_t<X>(number)));
  return out;
}
template <class V>
constexpr bool require_condition() {
  static_assert(
      is_constant<V>,
      "weft: where: the condition is a Variable of real numbers, whose gradient would be lost: make it by a comparison, "
      "greater(x, 0), or make it a constant, x.detach()");
  return is_constant<V>;
}

// A condition's placement beside a value's: it has no gradient, so a whole one fits whole values and terms.
template <class Z, class C>
using condition_beside =
    std::conditional_t<same_piece<Z, C> && !has_terms<C>, Z, std::conditional_t<is_whole<C>, Replicated<typename C::axis>, C>>;
template <class Z, class C>
struct ConditionBeside {
  using type = C;
};
template <class T, class U, class E, class... PZ, class... PC>
requires(same_axes<Tensor<T, E, PZ...>, Tensor<U, E, PC...>>) struct ConditionBeside<Tensor<T, E, PZ...>, Tensor<U, E, PC...>> {
  using type = Tensor<T, E, condition_beside<PZ, PC>...>;
};
/// The rule of `where`: `values` of x and y, and `all`, of these and the condition.
template <class C, class X, class Y>
struct WhereRule {
  using values = Broadcast<Arithmetic::sum, X, Y>;
  using all = Broadcast<Arithmetic::sum, typename values::type, typename ConditionBeside<typename values::type, C>::type>;
  static constexpr bool fits = values::fits && all::fits && !any_partial<C>;
};

/// f(x, y) of each pair of elements of two tensors, in lanes; neither is Partial.
template <class X, class Y, class F>
auto mapped_pairs(const char* operation, const X& x, const Y& y, F f) {
  if constexpr (!require_pairs<X, Y>()) {
    return x;  // one error is enough
  } else {
    if constexpr (Pairs<X, Y>::alike)
      if (x.shape() == y.shape()) {
        typename Pairs<X, Y>::type out(x.device(), x.shape().with_cuts_of(y.shape()));
        kernels::map<typename X::value_type>(x.device(), x.size(), x.data(), y.data(), out.data(), f);
        return out;
      }
    return broadcast<Arithmetic::other>(operation, x, y, f);
  }
}
/// The gradient of an operand X of this shape: f(x, y, g) of each element of the result, summed where the operand was repeated.
template <class Own, class X, class Y, class G, class F>
gradient_t<Own> pairs_gradient(const char* operation, const Shape& own, const X& x, const Y& y, const G& g, F f) {
  using Z = typename Pairs<X, Y>::type;
  require_same_shape(operation, shape_of_pairs<Arithmetic::other>(operation, x, y), g);
  return sum_repeated<Own>(
      own, mapped_gradient(operation, repeated<Z>(operation, g.shape(), x), repeated<Z>(operation, g.shape(), y), g, f));
}
/// z = f(x, y) on Variables, with the gradients by_x(x, y, g) and by_y(x, y, g).
template <class C, class X, class Y, class Z, class DX, class DY>
auto record_pairs(const Variable<C, X>& x, const Variable<C, Y>& y, Z z, DX by_x, DY by_y) {
  if constexpr (!Pairs<X, Y>::fits) return AlreadyRefused();
  else
    return record(x, std::move(z),
                  from(x, [a = x.value(), b = y.value(), by_x](const auto&, const auto& g) { return by_x(a, b, g); }),
                  from(y, [a = x.value(), b = y.value(), by_y](const auto&, const auto& g) { return by_y(a, b, g); }));
}

}  // namespace detail

namespace operations {

/// The gradients of x, given the result y (exp, sqrt, tanh, sigmoid) or x itself (log, square), and the gradient g of y.
template <AnyTensor Y, AnyTensor G>
G exp_gradient(const Y& y, const G& g) {
  require_gradient_of<Y, G>();
  return times(g, y);
}
template <AnyTensor X, AnyTensor G>
G log_gradient(const X& x, const G& g) {
  require_gradient_of<X, G>();
  return divide(g, x);
}
template <AnyTensor Y, AnyTensor G>
G sqrt_gradient(const Y& y, const G& g) {
  return detail::mapped_gradient("sqrt_gradient", y, g, kernels::SqrtGradient());
}
template <AnyTensor X, AnyTensor G>
G square_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("square_gradient", x, g, kernels::SquareGradient());
}
template <AnyTensor Y, AnyTensor G>
G tanh_gradient(const Y& y, const G& g) {
  return detail::mapped_gradient("tanh_gradient", y, g, kernels::TanhGradient());
}
template <AnyTensor Y, AnyTensor G>
G sigmoid_gradient(const Y& y, const G& g) {
  return detail::mapped_gradient("sigmoid_gradient", y, g, kernels::SigmoidGradient());
}

/// x sigmoid(x), and its gradient by x.
template <AnyTensor X>
X silu(const X& x) {
  return detail::mapped(x, kernels::Silu());
}
template <AnyTensor X, AnyTensor G>
G silu_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("silu_gradient", x, g, kernels::SiluGradient());
}

/// GELU in its tanh form, as the layer Gelu has it, and its gradient by x.
template <AnyTensor X>
X gelu(const X& x) {
  require_not_partial<X>();
  X out(x.device(), x.shape());
  kernels::gelu_forward(x.device(), x.size(), x.data(), out.data());
  return out;
}
template <AnyTensor X, AnyTensor G>
G gelu_gradient(const X& x, const G& g) {
  require_gradient_of<X, G>();
  detail::require_same_shape("gelu_gradient", x, g);
  G out(g.device(), g.shape());
  kernels::gelu_backward(x.device(), x.size(), x.data(), g.data(), out.data());
  return out;
}
/// GELU with the error function, x Φ(x), and its gradient by x. Slower than `gelu`: no vector erf.
template <AnyTensor X>
X gelu_erf(const X& x) {
  return detail::mapped(x, kernels::GeluErf());
}
template <AnyTensor X, AnyTensor G>
G gelu_erf_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("gelu_erf_gradient", x, g, kernels::GeluErfGradient());
}

/// max(x, 0), and its gradient by the result y: 0 where x <= 0.
template <AnyTensor X>
X relu(const X& x) {
  return detail::mapped(x, kernels::Relu());
}
template <AnyTensor Y, AnyTensor G>
G relu_gradient(const Y& y, const G& g) {
  return detail::mapped_gradient("relu_gradient", y, g, kernels::ReluGradient());
}

/// x, but at least `lowest` and at most `highest`. The gradient by x is g inside and on the bounds, 0 outside.
template <AnyTensor X>
X clamp(const X& x, double lowest, double highest) {
  if (!(lowest <= highest)) throw_error<UsageError>({"clamp: the lowest value is above the highest one, or one is NaN"});
  using A = detail::number_t<X>;
  return detail::mapped(x, kernels::Clamp<A>{A(lowest), A(highest)});
}
template <AnyTensor X, AnyTensor G>
G clamp_gradient(const X& x, double lowest, double highest, const G& g) {
  using A = detail::number_t<X>;
  return detail::mapped_gradient("clamp_gradient", x, g, kernels::ClampGradient<A>{A(lowest), A(highest)});
}

/// The larger or smaller element of two tensors with equal placements, or broadcast (broadcast.hpp). Gradients:
/// maximum_gradient(x, y, g) for x, (y, x, g) for y; equal elements have half each. Throws ShapeError for shapes that do not fit.
template <AnyTensor X, AnyTensor Y>
auto maximum(const X& x, const Y& y) {
  return detail::mapped_pairs("maximum", x, y, kernels::Maximum());
}
/// The smaller of x and y, element by element, as maximum.
template <AnyTensor X, AnyTensor Y>
auto minimum(const X& x, const Y& y) {
  return detail::mapped_pairs("minimum", x, y, kernels::Minimum());
}
template <AnyTensor X, AnyTensor Y, AnyTensor G>
auto maximum_gradient(const X& x, const Y& other, const G& g) {
  return detail::pairs_gradient<X>("maximum_gradient", x.shape(), x, other, g, kernels::MaximumGradient<detail::number_t<X>>{1});
}
template <AnyTensor X, AnyTensor Y, AnyTensor G>
auto minimum_gradient(const X& x, const Y& other, const G& g) {
  return detail::pairs_gradient<X>("minimum_gradient", x.shape(), x, other, g, kernels::MaximumGradient<detail::number_t<X>>{-1});
}

/// x where the condition is not 0, else y. x and y have equal placements, the condition is on the same ranks (whole where they
/// are whole or Partial, cut where they are cut), or they are broadcast (broadcast.hpp). Throws ShapeError for shapes that do not
/// fit. Gradients: where_gradient(condition, g, true) for x, with false for y, summed over the dims in which the operand was
/// repeated.
template <AnyTensor C, AnyTensor X, AnyTensor Y>
auto where(const C& condition, const X& x, const Y& y) {
  using Rule = detail::WhereRule<C, X, Y>;
  static_assert(Rule::values::fits,
                "weft: where: the two tensors are placed differently, or hold different element types; bring one to the other's "
                "layout, to_layout_of(x, y), on tensors to_layout_of<X>(context, y), or type, cast<T>(y)");
  static_assert(
      !Rule::values::fits || Rule::fits,
      "weft: where: an axis cuts the condition and not the tensors, or otherwise: make it from a tensor that lies as they "
      "do, greater(x, 0), or bring tensors that are repeated to Replicated<axis>");
  if constexpr (Rule::fits) {
    using T = typename X::value_type;
    using Z = typename Rule::all::type;
    const Shape values = detail::shape_of_pairs<detail::Arithmetic::sum>("where", x, y);
    if constexpr (!Rule::all::repeats) detail::require_same_shape("where", values, condition);
    Z out(x.device(), detail::broadcast_shape("where", values, condition, Rule::all::cuts));
    const Z a = detail::repeated<Z>("where", out.shape(), x), b = detail::repeated<Z>("where", out.shape(), y);
    const auto mask = detail::repeated<with_scalar_t<Z, typename C::value_type>>("where", out.shape(), condition);
    kernels::select<T>(x.device(), out.size(), mask.data(), static_cast<const T*>(a.data()), static_cast<const T*>(b.data()),
                       out.data());
    return out;
  } else {
    return x;  // one error is enough
  }
}
/// The same with a number for x or y; the other one is not Partial.
template <AnyTensor C, AnyTensor X>
auto where(const C& condition, const X& x, double number) {
  return where(condition, x, detail::number_like(x, number));
}
template <AnyTensor C, AnyTensor X>
auto where(const C& condition, double number, const X& x) {
  return where(condition, detail::number_like(x, number), x);
}
/// The gradient of x (`chosen`) or y in where(condition, x, y), for each element of the result.
template <AnyTensor C, AnyTensor G>
G where_gradient(const C& condition, const G& g, bool chosen) {
  using T = typename G::value_type;
  const auto mask = detail::repeated<with_scalar_t<G, typename C::value_type>>("where_gradient", g.shape(), condition);
  G out(g.device(), g.shape());
  const T* values = g.data();
  kernels::select<T>(g.device(), g.size(), mask.data(), chosen ? values : nullptr, chosen ? nullptr : values, out.data());
  return out;
}

// The same on Variables. Kept for backward: the result of exp, sqrt, tanh, sigmoid and relu; the operand of all others.
template <class C, class X>
auto exp(const Variable<C, X>& x) {
  return detail::record_by_result(x, exp(x.value()), [](const auto& y, const auto& g) { return exp_gradient(y, g); });
}
template <class C, class X>
auto sqrt(const Variable<C, X>& x) {
  return detail::record_by_result(x, sqrt(x.value()), [](const auto& y, const auto& g) { return sqrt_gradient(y, g); });
}
template <class C, class X>
auto tanh(const Variable<C, X>& x) {
  return detail::record_by_result(x, tanh(x.value()), [](const auto& y, const auto& g) { return tanh_gradient(y, g); });
}
template <class C, class X>
auto sigmoid(const Variable<C, X>& x) {
  return detail::record_by_result(x, sigmoid(x.value()), [](const auto& y, const auto& g) { return sigmoid_gradient(y, g); });
}
template <class C, class X>
auto relu(const Variable<C, X>& x) {
  return detail::record_by_result(x, relu(x.value()), [](const auto& y, const auto& g) { return relu_gradient(y, g); });
}
template <class C, class X>
auto log(const Variable<C, X>& x) {
  return detail::record_by_operand(x, log(x.value()), [](const auto& v, const auto& g) { return log_gradient(v, g); });
}
template <class C, class X>
auto square(const Variable<C, X>& x) {
  return detail::record_by_operand(x, square(x.value()), [](const auto& v, const auto& g) { return square_gradient(v, g); });
}
template <class C, class X>
auto silu(const Variable<C, X>& x) {
  return detail::record_by_operand(x, silu(x.value()), [](const auto& v, const auto& g) { return silu_gradient(v, g); });
}
template <class C, class X>
auto gelu(const Variable<C, X>& x) {
  return detail::record_by_operand(x, gelu(x.value()), [](const auto& v, const auto& g) { return gelu_gradient(v, g); });
}
template <class C, class X>
auto gelu_erf(const Variable<C, X>& x) {
  return detail::record_by_operand(x, gelu_erf(x.value()), [](const auto& v, const auto& g) { return gelu_erf_gradient(v, g); });
}
template <class C, class X>
auto clamp(const Variable<C, X>& x, double lowest, double highest) {
  return detail::record_by_operand(x, clamp(x.value(), lowest, highest), [lowest, highest](const auto& v, const auto& g) {
    return clamp_gradient(v, lowest, highest, g);
  });
}
template <class C, class X, class Y>
auto maximum(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::record_pairs(
      x, y, maximum(x.value(), y.value()), [](const auto& a, const auto& b, const auto& g) { return maximum_gradient(a, b, g); },
      [](const auto& a, const auto& b, const auto& g) { return maximum_gradient(b, a, g); });
}
template <class C, class X, class Y>
auto minimum(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::record_pairs(
      x, y, minimum(x.value(), y.value()), [](const auto& a, const auto& b, const auto& g) { return minimum_gradient(a, b, g); },
      [](const auto& a, const auto& b, const auto& g) { return minimum_gradient(b, a, g); });
}
/// The condition has no gradient: whole numbers, or x.detach().
template <AnyVariable N, class C, class X, class Y>
auto where(const N& condition, const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (!detail::require_condition<N>()) {
    return detail::AlreadyRefused();
  } else {
    const auto c = condition.value();
    auto z = where(c, x.value(), y.value());
    if constexpr (!detail::WhereRule<typename N::tensor_type, X, Y>::fits) {
      return detail::AlreadyRefused();
    } else {
      const auto by = [c](bool chosen, auto own) {
        return [c, chosen, shape = own.shape()](const auto&, const auto& g) {
          return detail::sum_repeated<decltype(own)>(shape, where_gradient(c, g, chosen));
        };
      };
      return detail::record(x, std::move(z), detail::from(x, by(true, x.value())), detail::from(y, by(false, y.value())));
    }
  }
}
template <AnyVariable N, class C, class X>
auto where(const N& condition, const Variable<C, X>& x, double number) {
  return where(condition, x, Variable<C, X>(detail::number_like(x.value(), number), x.tape()));
}
template <AnyVariable N, class C, class X>
auto where(const N& condition, double number, const Variable<C, X>& x) {
  return where(condition, Variable<C, X>(detail::number_like(x.value(), number), x.tape()), x);
}

}  // namespace operations

/// x with elements of type U, any placement; of whole numbers, such as pixels or weights of a batch, a constant.
template <detail::Real U, class C, class X>
auto cast(const Variable<C, X>& x) {
  if constexpr (!detail::Real<typename X::value_type>) return Variable<C, with_scalar_t<X, U>>(cast<U>(x.value()), x.tape());
  else return detail::record_by_gradient(x, cast<U>(x.value()), [](const auto& g) { return cast<typename X::value_type>(g); });
}

}  // namespace weft
