// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arithmetic and functions of each element inside of grad(f, x). Placements are those of arithmetic.hpp and functions.hpp. Each
// gradient is a formula of these operations, so it can be differentiated as often as needed.

#include <cmath>
#include <numbers>
#include <type_traits>

#include <weft/autograd/nested_variable.hpp>
#include <weft/operations/arithmetic.hpp>
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

namespace operations {

template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator+(const Variable<C, X>& x, const Variable<C, Y>& y) {
  const auto same = [](const auto&, const auto&, const auto&, const auto& g) { return g; };
  return detail::binary(
      x, y, [](const auto& a, const auto& b) { return a + b; }, same, same);
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator-(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::binary(
      x, y, [](const auto& a, const auto& b) { return a - b; },
      [](const auto&, const auto&, const auto&, const auto& g) { return g; },
      [](const auto&, const auto&, const auto&, const auto& g) { return -g; });
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator*(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::binary(
      x, y, [](const auto& a, const auto& b) { return a * b; },
      [](const auto&, const auto& b, const auto&, const auto& g) { return g * b; },
      [](const auto& a, const auto&, const auto&, const auto& g) { return g * a; });
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto operator/(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::binary(
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
/// The derivative of x⁰ is 0 everywhere.
template <class C, detail::Nested X>
auto pow(const Variable<C, X>& x, double exponent) {
  return detail::unary(x, pow(x.value(), exponent), [exponent](const auto& a, const auto&, const auto& g) {
    return exponent == 0 ? 0.0 * g : exponent * (g * pow(a, exponent - 1));
  });
}

/// g where the condition, a tensor, is 1 (`chosen`) or 0, and 0 elsewhere; on any level.
template <AnyTensor N, class C, class G>
auto where_gradient(const N& condition, const Variable<C, G>& g, bool chosen) {
  return detail::linear_in(
      g, [=](const auto& value) { return where_gradient(condition, value, chosen); },
      [=](const auto& h) { return where_gradient(condition, h, chosen); });
}
/// Their second derivatives are 0.
template <class C, detail::Nested X>
auto relu(const Variable<C, X>& x) {
  return detail::unary(x, relu(x.value()), [](const auto& a, const auto&, const auto& g) {
    return where_gradient(greater(detail::bottom_of(a), 0), g, true);
  });
}
template <class C, detail::Nested X>
auto abs(const Variable<C, X>& x) {
  return detail::unary(x, abs(x.value()), [](const auto& a, const auto&, const auto& g) {
    const auto& values = detail::bottom_of(a);
    return where_gradient(greater(values, 0), g, true) - where_gradient(greater(scale(values, -1), 0), g, true);
  });
}

// Refused, before the operation on tensors is called.
template <class C, detail::Nested X, class F, class D>
auto map(const Variable<C, X>& x, F, D) {
  return detail::record(x, x.value());
}

}  // namespace operations

}  // namespace weft
