// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions of each element that models of fields need beyond those of functions.hpp: sin, cos, abs, erf, pow, softplus, elu and
// mish. Placements as there: a result is placed as its operand, which is not Partial. Each gradient is a function of the operand.
//
//   auto features = concat<1>(sin(x * frequency), cos(x * frequency));
//   auto loss = sum(pow(abs(x - y), 1.5));

#include <type_traits>

#include <weft/autograd/nested_variable.hpp>
#include <weft/kernels/special_functions.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/functions.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::operations {

/// sin(x) and cos(x) of radians.
template <AnyTensor X>
X sin(const X& x) {
  return detail::mapped(x, kernels::Sin());
}
template <AnyTensor X, AnyTensor G>
G sin_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("sin_gradient", x, g, kernels::SinGradient());
}
/// The cosine of each element, in accumulate_t, in x's placements.
template <AnyTensor X>
X cos(const X& x) {
  return detail::mapped(x, kernels::Cos());
}
template <AnyTensor X, AnyTensor G>
G cos_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("cos_gradient", x, g, kernels::CosGradient());
}

/// |x|. The gradient is 0 where x is 0, as PyTorch's.
template <AnyTensor X>
X abs(const X& x) {
  return detail::mapped(x, kernels::Abs());
}
template <AnyTensor X, AnyTensor G>
G abs_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("abs_gradient", x, g, kernels::AbsGradient());
}

/// The error function.
template <AnyTensor X>
X erf(const X& x) {
  return detail::mapped(x, kernels::Erf());
}
template <AnyTensor X, AnyTensor G>
G erf_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("erf_gradient", x, g, kernels::ErfGradient());
}

/// x to the power of a number, NaN of a negative x unless the exponent is whole. The gradient of x⁰ is 0 everywhere.
template <AnyTensor X>
X pow(const X& x, double exponent) {
  using A = detail::number_t<X>;
  return detail::mapped(x, kernels::Power<A>{A(exponent)});
}
template <AnyTensor X, AnyTensor G>
G pow_gradient(const X& x, double exponent, const G& g) {
  using A = detail::number_t<X>;
  return detail::mapped_gradient("pow_gradient", x, g, kernels::PowerGradient<A>{A(exponent)});
}

/// x to the power y of each pair of elements, as the C library's pow; neither is Partial, and they are placed alike or broadcast
/// (broadcast.hpp). Gradients as PyTorch's: pow_gradient(x, y, g), g y x^(y - 1), 0 where y is 0, and
/// exponent_gradient(x, y, g), g x^y log(x), 0 where x is 0 and y is not negative.
template <AnyTensor X, AnyTensor Y>
auto pow(const X& x, const Y& y) {
  return detail::mapped_pairs("pow", x, y, kernels::PowerOfPairs());
}
template <AnyTensor X, AnyTensor Y, AnyTensor G>
auto pow_gradient(const X& x, const Y& y, const G& g) {
  return detail::pairs_gradient<X>("pow_gradient", x.shape(), x, y, g, kernels::BaseGradient());
}
/// The gradient of y in pow(x, y), from the gradient g of the result: g x^y log(x), summed where y was repeated.
template <AnyTensor X, AnyTensor Y, AnyTensor G>
auto exponent_gradient(const X& x, const Y& y, const G& g) {
  return detail::pairs_gradient<Y>("exponent_gradient", y.shape(), x, y, g, kernels::ExponentGradient());
}
/// A number to the power x.
template <AnyTensor X>
X pow(double base, const X& x) {
  return pow(detail::number_like(x, base), x);
}

/// log(1 + exp(x)), which does not overflow and does not lose small results.
template <AnyTensor X>
X softplus(const X& x) {
  return detail::mapped(x, kernels::Softplus());
}
template <AnyTensor X, AnyTensor G>
G softplus_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("softplus_gradient", x, g, kernels::SoftplusGradient());
}

/// x where positive, else alpha (exp(x) - 1).
template <AnyTensor X>
X elu(const X& x, double alpha = 1) {
  using A = detail::number_t<X>;
  return detail::mapped(x, kernels::Elu<A>{A(alpha)});
}
template <AnyTensor X, AnyTensor G>
G elu_gradient(const X& x, double alpha, const G& g) {
  using A = detail::number_t<X>;
  return detail::mapped_gradient("elu_gradient", x, g, kernels::EluGradient<A>{A(alpha)});
}

/// x tanh(softplus(x)).
template <AnyTensor X>
X mish(const X& x) {
  return detail::mapped(x, kernels::Mish());
}
template <AnyTensor X, AnyTensor G>
G mish_gradient(const X& x, const G& g) {
  return detail::mapped_gradient("mish_gradient", x, g, kernels::MishGradient());
}

// The same on Variables, which keep the operand for backward.
template <class C, class X>
auto sin(const Variable<C, X>& x) {
  return detail::record_by_operand(x, sin(x.value()), [](const auto& v, const auto& g) { return sin_gradient(v, g); });
}
template <class C, class X>
auto cos(const Variable<C, X>& x) {
  return detail::record_by_operand(x, cos(x.value()), [](const auto& v, const auto& g) { return cos_gradient(v, g); });
}
template <class C, class X>
auto abs(const Variable<C, X>& x) {
  return detail::record_by_operand(x, abs(x.value()), [](const auto& v, const auto& g) { return abs_gradient(v, g); });
}
template <class C, class X>
auto erf(const Variable<C, X>& x) {
  return detail::record_by_operand(x, erf(x.value()), [](const auto& v, const auto& g) { return erf_gradient(v, g); });
}
template <class C, class X>
auto pow(const Variable<C, X>& x, double exponent) {
  return detail::record_by_operand(x, pow(x.value(), exponent),
                                   [exponent](const auto& v, const auto& g) { return pow_gradient(v, exponent, g); });
}
template <class C, class X, class Y>
auto pow(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::record_pairs(
      x, y, pow(x.value(), y.value()), [](const auto& a, const auto& b, const auto& g) { return pow_gradient(a, b, g); },
      [](const auto& a, const auto& b, const auto& g) { return exponent_gradient(a, b, g); });
}
template <class C, class X>
auto pow(double base, const Variable<C, X>& x) {
  return pow(detail::constant_at(x, detail::number_like(detail::bottom_of(x), base)), x);
}
template <class C, class X>
auto softplus(const Variable<C, X>& x) {
  return detail::record_by_operand(x, softplus(x.value()), [](const auto& v, const auto& g) { return softplus_gradient(v, g); });
}
template <class C, class X>
auto elu(const Variable<C, X>& x, double alpha = 1) {
  return detail::record_by_operand(x, elu(x.value(), alpha),
                                   [alpha](const auto& v, const auto& g) { return elu_gradient(v, alpha, g); });
}
template <class C, class X>
auto mish(const Variable<C, X>& x) {
  return detail::record_by_operand(x, mish(x.value()), [](const auto& v, const auto& g) { return mish_gradient(v, g); });
}

}  // namespace weft::operations
