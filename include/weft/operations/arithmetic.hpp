// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors in formulas: + - * / of tensors and numbers. They are add, subtract, times, divide and scale under other names, with
// the same rules (rules.hpp), so a formula whose terms have placements that do not fit does not compile.
//
//   auto y = (2 * x + 1) / (x * x + 3);

#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/functions.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/refused.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/variables.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

template <class X>
constexpr void require_number_fits() {
  static_assert(
      !any_partial<X>,
      "weft: adding a number to a Partial tensor adds it once for each rank, and a number over terms is not the terms of "
      "the quotient: reduce it first, to<Invariant<axis>>(x), on tensors (context, x)");
}

/// f of each element of x, with an f that is written in lanes.
template <class X, class F>
X mapped_lanes(const X& x, F f) {
  X out(x.device(), x.shape());
  kernels::map<typename X::value_type>(x.device(), x.size(), x.data(), out.data(), f);
  return out;
}
/// The same with a nonlinear f; x is not Partial.
template <class X, class F>
X mapped(const X& x, F f) {
  require_not_partial<X>();
  return mapped_lanes(x, f);
}
/// f(x, g) of each element, the gradient of x; x may be forward's result.
template <class X, class G, class F>
G mapped_gradient(const char* operation, const X& x, const G& g, F f) {
  require_gradient_of<X, G>();
  if constexpr (std::is_same_v<G, gradient_t<X>>) {
    require_same_shape(operation, x, g);
    G out(g.device(), g.shape());
    kernels::map<typename X::value_type>(g.device(), g.size(), x.data(), g.data(), out.data(), f);
    return out;
  } else {
    return g;
  }
}
/// f(x, y, g) of each element, the gradient of an operand placed as x and y are.
template <class X, class G, class F>
G mapped_gradient(const char* operation, const X& x, const X& y, const G& g, F f) {
  require_gradient_of<X, G>();
  if constexpr (std::is_same_v<G, gradient_t<X>>) {
    require_same_shape(operation, x, g);
    require_same_shape(operation, y, g);
    G out(g.device(), g.shape());
    kernels::map<typename X::value_type>(g.device(), g.size(), x.data(), y.data(), g.data(), out.data(), f);
    return out;
  } else {
    return g;
  }
}
template <class X>
using number_t = accumulate_t<typename X::value_type>;

/// y = f(x) on Variables, whose gradient is gradient(y, g), or gradient(x, g).
template <class C, class X, class Y, class F>
auto record_by_result(const Variable<C, X>& x, Y y, F gradient) {
  if constexpr (any_partial<X>) return AlreadyRefused();  // a nonlinear function
  else return record(x, y, from(x, [y, gradient](const auto&, const auto& g) { return gradient(y, g); }));
}
template <class C, class X, class Y, class F>
auto record_by_operand(const Variable<C, X>& x, Y y, F gradient) {
  if constexpr (any_partial<X>) return AlreadyRefused();
  else return record(x, std::move(y), from(x, [x = x.value(), gradient](const auto&, const auto& g) { return gradient(x, g); }));
}
template <class C, class X, class Y, class F>
auto record_by_gradient(const Variable<C, X>& x, Y y, F gradient) {
  return record(x, std::move(y), from(x, [gradient](const auto&, const auto& g) { return gradient(g); }));
}

}  // namespace detail

namespace operations {

/// x + number. Gradient: g.
template <AnyTensor X>
X add_number(const X& x, double number) {
  detail::require_number_fits<X>();
  return detail::mapped_lanes(x, kernels::AddNumber<detail::number_t<X>>{detail::number_t<X>(number)});
}
/// number - x. Gradient: scale(g, -1).
template <AnyTensor X>
X subtract_from(double number, const X& x) {
  detail::require_number_fits<X>();
  return detail::mapped_lanes(x, kernels::SubtractFrom<detail::number_t<X>>{detail::number_t<X>(number)});
}
/// number / x. Gradient: divisor_gradient(x, y, g), with y the result.
template <AnyTensor X>
X divide_number(double number, const X& x) {
  detail::require_number_fits<X>();
  return detail::mapped_lanes(x, kernels::DivideNumber<detail::number_t<X>>{detail::number_t<X>(number)});
}
/// The gradient of x in y = number / x, and in y = a / x where a lies as x: -g y / x. If a is Partial and x Replicated, y and so
/// this term of the gradient are Partial, as the gradient of a Replicated x is to be.
template <AnyTensor X, AnyTensor Y, AnyTensor G>
auto divisor_gradient(const X& x, const Y& y, const G& g) {
  if constexpr (std::is_same_v<X, Y>) return detail::mapped_gradient("divisor_gradient", x, y, g, kernels::DivisorGradient());
  else return scale(divide(times(g, y), x), -1);
}

template <AnyTensor X, AnyTensor Y>
auto operator+(const X& x, const Y& y) {
  return add(x, y);
}
template <AnyTensor X>
X operator+(const X& x, double number) {
  return add_number(x, number);
}
// Tensor, not AnyTensor: clang 14 instantiates an operator of a number and any X for two numbers, and refuses that.
template <class T, class E, Placement... P>
Tensor<T, E, P...> operator+(double number, const Tensor<T, E, P...>& x) {
  return add_number(x, number);
}
template <AnyTensor X, AnyTensor Y>
auto operator-(const X& x, const Y& y) {
  return subtract(x, y);
}
template <AnyTensor X>
X operator-(const X& x, double number) {
  return add_number(x, -number);
}
template <class T, class E, Placement... P>
Tensor<T, E, P...> operator-(double number, const Tensor<T, E, P...>& x) {
  return subtract_from(number, x);
}
template <AnyTensor X>
X operator-(const X& x) {
  return scale(x, -1);
}
template <AnyTensor X, AnyTensor Y>
auto operator*(const X& x, const Y& y) {
  return times(x, y);
}
template <AnyTensor X>
X operator*(const X& x, double number) {
  return scale(x, number);
}
template <class T, class E, Placement... P>
Tensor<T, E, P...> operator*(double number, const Tensor<T, E, P...>& x) {
  return scale(x, number);
}
template <AnyTensor X, AnyTensor Y>
auto operator/(const X& x, const Y& y) {
  return divide(x, y);
}
template <AnyTensor X>
X operator/(const X& x, double number) {
  return scale(x, 1 / number);
}
template <class T, class E, Placement... P>
Tensor<T, E, P...> operator/(double number, const Tensor<T, E, P...>& x) {
  return divide_number(number, x);
}

template <class C, class X>
auto operator+(const Variable<C, X>& x, double number) {
  if constexpr (!detail::Real<typename X::value_type>) return detail::refused_whole_numbers<X>();
  else return detail::record_by_gradient(x, add_number(x.value(), number), [](const auto& g) { return g; });
}
template <class C, class X>
auto operator+(double number, const Variable<C, X>& x) {
  return x + number;
}
template <class C, class X>
auto operator-(const Variable<C, X>& x, double number) {
  return x + -number;
}
template <class C, class X>
auto operator-(double number, const Variable<C, X>& x) {
  if constexpr (!detail::Real<typename X::value_type>) return detail::refused_whole_numbers<X>();
  else return detail::record_by_gradient(x, subtract_from(number, x.value()), [](const auto& g) { return scale(g, -1); });
}
template <class C, class X>
auto operator/(double number, const Variable<C, X>& x) {
  const auto y = divide_number(number, x.value());
  return detail::record(x, y,
                        detail::from(x, [y, x = x.value()](const auto&, const auto& g) { return divisor_gradient(x, y, g); }));
}

}  // namespace operations

}  // namespace weft
