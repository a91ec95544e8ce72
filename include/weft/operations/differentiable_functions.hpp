// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arithmetic and functions of each element inside of grad(f, x). Placements are those of arithmetic.hpp and functions.hpp. Each
// gradient is a formula of these operations, so it can be differentiated as often as needed.

#include <cmath>
#include <numbers>
#include <type_traits>

#include <weft/autograd/nested_variable.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/broadcast.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/special_functions.hpp>
#include <weft/operations/variables.hpp>

namespace weft {

/// x with the placement To on To's axis.
template <Placement To, class C, detail::Nested X>
auto to(const Variable<C, X>& x) {
  return detail::unary(x, to<To>(x.value()), [](const auto&, const auto&, const auto& g) { return g; });
}
template <class C, class X, class Y>
requires(detail::Nested<Y> || detail::Nested<X>) auto to_layout_of(const Variable<C, X>&, const Variable<C, Y>& y) {
  return detail::placed_as<detail::bottom_t<X>>(y);
}

namespace detail {

// The sum of g over the dims in which an operation repeats its operand, an X of this shape; and its transpose, h repeated to a Z
// of the result's shape. On any level.
template <class X, AnyTensor G>
gradient_t<X> summed_repeats(const Shape& operand, const G& g) {
  return sum_repeated<X>(operand, g);
}
template <class Z, AnyTensor H>
Z with_repeats(const Shape& result, const H& h) {
  return repeated<Z>("repeat", result, h);
}
template <class Z, class C, class H>
auto with_repeats(const Shape& result, const Variable<C, H>& h);
template <class X, class C, class G>
auto summed_repeats(const Shape& operand, const Variable<C, G>& g) {
  return linear_in(
      g, [=](const auto& value) { return summed_repeats<X>(operand, value); },
      [result = g.shape()](const auto& h) { return with_repeats<gradient_t<bottom_t<G>>>(result, h); });
}
template <class Z, class C, class H>
auto with_repeats(const Shape& result, const Variable<C, H>& h) {
  return linear_in(
      h, [=](const auto& value) { return with_repeats<Z>(result, value); },
      [operand = h.shape()](const auto& k) { return summed_repeats<bottom_t<H>>(operand, k); });
}
/// g, the gradient of each element of a result, as that of the operand a.
template <class A, class G>
auto unrepeated(const A& a, const G& g) {
  if constexpr (is_refused<G>) {
    return g;
  } else {
    using X = bottom_t<A>;
    using Sum = typename SummedGradient<X, bottom_t<G>>::type;
    if constexpr (std::is_same_v<Sum, bottom_t<G>>) {  // no axis cuts a dim that a repeats
      if constexpr (std::is_same_v<Sum, gradient_t<X>>)
        if (!(g.shape() == a.shape())) return summed_repeats<X>(a.shape(), g);
      return g;
    } else {
      return summed_repeats<X>(a.shape(), g);
    }
  }
}
/// binary with operands that the operation may repeat.
template <class C, class X, class Y, class F, class DX, class DY>
auto broadcasting(const Variable<C, X>& x, const Variable<C, Y>& y, F operation, DX by_x, DY by_y) {
  return binary(
      x, y, operation,
      [by_x](const auto& a, const auto& b, const auto& z, const auto& g) { return unrepeated(a, by_x(a, b, z, g)); },
      [by_y](const auto& a, const auto& b, const auto& z, const auto& g) { return unrepeated(b, by_y(a, b, z, g)); });
}

}  // namespace detail

namespace operations {

// + - * / of operands whose shapes fit or are broadcast (broadcast.hpp); gradients are summed over the dims that an operand
// repeats.
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator+(const Variable<C, X>& x, const Variable<C, Y>& y) {
  const auto same = [](const auto&, const auto&, const auto&, const auto& g) { return g; };
  return detail::broadcasting(
      x, y, [](const auto& a, const auto& b) { return a + b; }, same, same);
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator-(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::broadcasting(
      x, y, [](const auto& a, const auto& b) { return a - b; },
      [](const auto&, const auto&, const auto&, const auto& g) { return g; },
      [](const auto&, const auto&, const auto&, const auto& g) { return -g; });
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator*(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::broadcasting(
      x, y, [](const auto& a, const auto& b) { return a * b; },
      [](const auto&, const auto& b, const auto&, const auto& g) { return g * b; },
      [](const auto& a, const auto&, const auto&, const auto& g) { return g * a; });
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator/(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::broadcasting(
      x, y, [](const auto& a, const auto& b) { return a / b; },
      [](const auto&, const auto& b, const auto&, const auto& g) { return g / b; },
      [](const auto&, const auto& b, const auto& z, const auto& g) { return -(g * z / b); });
}
template <class C, detail::Nested X>
auto scale(const Variable<C, X>& x, double factor) {
  return detail::unary(x, scale(x.value(), factor),
                       [factor](const auto&, const auto&, const auto& g) { return scale(g, factor); });
}
template <class C, detail::Nested X>
auto operator*(const Variable<C, X>& x, double factor) {
  return scale(x, factor);
}
template <class C, detail::Nested X>
auto operator*(double factor, const Variable<C, X>& x) {
  return scale(x, factor);
}
template <class C, detail::Nested X>
auto operator/(const Variable<C, X>& x, double divisor) {
  return scale(x, 1 / divisor);
}
template <class C, detail::Nested X>
auto operator+(const Variable<C, X>& x, double number) {
  return detail::unary(x, x.value() + number, [](const auto&, const auto&, const auto& g) { return g; });
}
template <class C, detail::Nested X>
auto operator-(double number, const Variable<C, X>& x) {
  return detail::unary(x, number - x.value(), [](const auto&, const auto&, const auto& g) { return -g; });
}
template <class C, detail::Nested X>
auto operator/(double number, const Variable<C, X>& x) {
  return detail::unary(x, number / x.value(), [](const auto& a, const auto& y, const auto& g) { return -(g * y / a); });
}

#define WEFT_DIFFERENTIABLE(name, gradient)                                                                                      \
  template <class C, detail::Nested X>                                                                                           \
  auto name(const Variable<C, X>& x) {                                                                                           \
    return detail::unary(x, name(x.value()), []([[maybe_unused]] const auto& a, [[maybe_unused]] const auto& y, const auto& g) { \
      return gradient;                                                                                                           \
    });                                                                                                                          \
  }
WEFT_DIFFERENTIABLE(exp, g* y)
WEFT_DIFFERENTIABLE(log, g / a)
WEFT_DIFFERENTIABLE(sqrt, 0.5 * (g / y))
WEFT_DIFFERENTIABLE(square, 2.0 * (g * a))
WEFT_DIFFERENTIABLE(tanh, g - g * square(y))
WEFT_DIFFERENTIABLE(sigmoid, (g - g * y) * y)
WEFT_DIFFERENTIABLE(sin, g* cos(a))
WEFT_DIFFERENTIABLE(cos, -(g* sin(a)))
WEFT_DIFFERENTIABLE(erf, 2 * std::numbers::inv_sqrtpi * (g * exp(-square(a))))
WEFT_DIFFERENTIABLE(softplus, g* sigmoid(a))
#undef WEFT_DIFFERENTIABLE

template <class C, detail::Nested X>
auto silu(const Variable<C, X>& x) {
  return x * sigmoid(x);
}
/// The tanh form, as for tensors.
template <class C, detail::Nested X>
auto gelu(const Variable<C, X>& x) {
  return 0.5 * x * (1.0 + tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * (x * square(x)))));
}
template <class C, detail::Nested X>
auto gelu_erf(const Variable<C, X>& x) {
  return 0.5 * x * (1.0 + erf(x * std::sqrt(0.5)));
}
template <class C, detail::Nested X>
auto mish(const Variable<C, X>& x) {
  return x * tanh(softplus(x));
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto pow(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::broadcasting(
      x, y, [](const auto& a, const auto& b) { return pow(a, b); },
      [](const auto& a, const auto& b, const auto&, const auto& g) {
        return where_gradient(equal(detail::bottom_of(b), 0), g * (b * pow(a, b - 1.0)), false);
      },
      [](const auto& a, const auto& b, const auto& z, const auto& g) {
        const auto zero = equal(detail::bottom_of(a), 0);
        const auto negative = less(detail::bottom_of(b), 0);
        // The logarithm of 1 in place of 0, but for a negative exponent: a mask of log(0) would have the derivative 0 / 0.
        const auto one = detail::number_like(detail::bottom_of(a), 1.0);
        const auto safe = a + detail::constant_at(a, where(zero, where(negative, 0.0, one), 0.0));
        const auto slope = g * (z * log(safe));
        return where_gradient(zero, slope, false) + where_gradient(zero, where_gradient(negative, slope, true), true);
      });
}
/// The derivative of x⁰ is 0 everywhere.
template <class C, detail::Nested X>
auto pow(const Variable<C, X>& x, double exponent) {
  return detail::unary(x, pow(x.value(), exponent), [exponent](const auto& a, const auto&, const auto& g) {
    return exponent == 0 ? 0.0 * g : exponent * (g * pow(a, exponent - 1));
  });
}

// Refused, before the operation on tensors is called.
template <class C, detail::Nested X, class F, class D>
auto map(const Variable<C, X>& x, F, D) {
  return detail::record(x, x.value());
}

}  // namespace operations

}  // namespace weft
