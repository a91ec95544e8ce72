// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations on DTensors element by element, with NumPy's broadcasting: shapes are aligned at their last dims, and a dim of one
// element is repeated.
//
//   auto y = gelu(x + bias) * 0.5;   // x [rows, width], bias [width]
//
//   operation                         takes on an axis (else the operands are moved)   result
//   x + y, x - y, cast, -x, x * a     equal cuts; all partial                          alike
//   x * y, where                      equal cuts; the linear operand partial           alike
//   x / y                             equal cuts; x partial, y whole                   alike
//   exp, relu, maximum, x + a, ...    equal cuts, not partial                          alike
//
// Numerics: an element has the same bits in every layout, unless an operand is partial.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <weft/dtensor/apply.hpp>
#include <weft/dtensor/expand.hpp>
#include <weft/dtensor/functions.hpp>
#include <weft/kernels/special_functions.hpp>

namespace weft::dtensor {

namespace detail {

// ---- functions of one operand: name, rule, function, and gradient(x or y, g)

enum class GradientOf { operand, result };

template <class D, class F>
D map_one(std::string_view name, const D& x, unsigned linear, const F& f) {
  using T = typename D::value_type;
  const auto kernel = [&](auto& device, std::size_t n, const T* a, T* y) { kernels::map<T>(device, n, a, y, f); };
  return zip<T>(name, x.shape(), linear, 0, kernel, x);
}
template <class D, class F>
D map_two(std::string_view name, const D& x, const D& y, unsigned linear, unsigned also, const F& f) {
  using T = typename D::value_type;
  require_one_mesh(name, x, y);
  const auto kernel = [&](auto& device, std::size_t n, const T* a, const T* b, T* z) { kernels::map<T>(device, n, a, b, z, f); };
  return zip<T>(name, broadcast_shape(name, x, y), linear, also, kernel, x, y);
}
/// f(x), whose gradient is `gradient` of x or of f(x), and of the result's gradient.
template <class D, class F, class G>
D function(std::string_view name, const D& x, const F& f, const G& gradient, GradientOf of) {
  const D y = map_one(name, x, 0, f);
  const D saved = of == GradientOf::result ? y : x.detach();
  return recorded(y, on(x, [=](const D& g) { return map_two("backward", saved, g, 0b10, 0, gradient); }));
}
template <class D>
D scaled(const D& x, double factor) {
  using A = accumulate_t<typename D::value_type>;
  return map_one("multiply", x, 1, TimesNumber<A>{A(factor)});
}

/// f(x, y) after broadcasting; the gradients are functions of x, y, the result and its gradient, in the result's shape.
template <class D, class F, class GX, class GY>
D binary(std::string_view name, const D& x, const D& y, unsigned linear, unsigned also, const F& f, GX x_gradient,
         GY y_gradient) {
  const D z = map_two(name, x, y, linear, also, f), a = x.detach(), b = y.detach();
  return recorded(z, on(x, [=](const D& g) { return sum_to(x_gradient(a, b, z, g), a.shape()); }),
                  on(y, [=](const D& g) { return sum_to(y_gradient(a, b, z, g), b.shape()); }));
}
/// The gradient of `own` in maximum (sign 1) or minimum (-1) of it and another tensor.
template <class D, class A>
D extreme_gradient(const D& own, const D& other, const D& g, A sign) {
  using T = typename D::value_type;
  const auto kernel = [=](auto& device, std::size_t n, const T* a, const T* b, const T* d, T* out) {
    kernels::map<T>(device, n, a, b, d, out, kernels::MaximumGradient<A>{sign});
  };
  return zip<T>("backward", g.shape(), 0b100, 0, kernel, own, other, g);
}
template <class D, class F>
D extreme(std::string_view name, const D& x, const D& y, const F& f, double sign) {
  using A = accumulate_t<typename D::value_type>;
  return binary(
      name, x, y, 0, 0, f, [=](const D& a, const D& b, const D&, const D& g) { return extreme_gradient(a, b, g, A(sign)); },
      [=](const D& a, const D& b, const D&, const D& g) { return extreme_gradient(b, a, g, A(sign)); });
}

}  // namespace detail

/// The tensors of real numbers that these operations take.
template <class D>
concept RealTensor = detail::is_dtensor<D> && weft::detail::Real<typename D::value_type>;

/// e to the power of each element; the placements are those of the table at the head of this header.
template <RealTensor D>
D exp(const D& x) {
  return detail::function("exp", x, detail::Exp(), detail::Times(), detail::GradientOf::result);
}
/// Natural logarithms.
template <RealTensor D>
D log(const D& x) {
  return detail::function("log", x, detail::Log(), detail::DividedInto(), detail::GradientOf::operand);
}
/// Hyperbolic tangents.
template <RealTensor D>
D tanh(const D& x) {
  return detail::function("tanh", x, kernels::Tanh(), kernels::TanhGradient(), detail::GradientOf::result);
}
/// 1 / (1 + exp(-x)).
template <RealTensor D>
D sigmoid(const D& x) {
  return detail::function("sigmoid", x, detail::Sigmoid(), kernels::SigmoidGradient(), detail::GradientOf::result);
}
/// Square roots.
template <RealTensor D>
D sqrt(const D& x) {
  return detail::function("sqrt", x, detail::Sqrt(), kernels::SqrtGradient(), detail::GradientOf::result);
}
/// The larger of x and 0, element by element.
template <RealTensor D>
D relu(const D& x) {
  return detail::function("relu", x, kernels::Relu(), kernels::ReluGradient(), detail::GradientOf::result);
}
/// x Φ(x), exactly, as torch's default.
template <RealTensor D>
D gelu(const D& x) {
  return detail::function("gelu", x, kernels::GeluErf(), kernels::GeluErfGradient(), detail::GradientOf::operand);
}
/// x sigmoid(x), the swish function.
template <RealTensor D>
D silu(const D& x) {
  return detail::function("silu", x, kernels::Silu(), kernels::SiluGradient(), detail::GradientOf::operand);
}
/// x to the power of a number.
template <RealTensor D>
D pow(const D& x, double exponent) {
  using A = accumulate_t<typename D::value_type>;
  return detail::function("pow", x, kernels::Power<A>{A(exponent)}, kernels::PowerGradient<A>{A(exponent)},
                          detail::GradientOf::operand);
}
/// Products with a number, or of two tensors after broadcasting.
template <RealTensor D>
D operator*(const D& x, double factor) {
  return detail::recorded(detail::scaled(x, factor), detail::on(x, [=](const D& g) { return detail::scaled(g, factor); }));
}
template <RealTensor D>
D operator*(double factor, const D& x) {
  return x * factor;
}
/// Quotients by a number, or of two tensors after broadcasting.
template <RealTensor D>
D operator/(const D& x, double divisor) {
  return x * (1 / divisor);
}
/// The opposite of x; with a second operand the difference, after broadcasting.
template <RealTensor D>
D operator-(const D& x) {
  return x * -1.0;
}
/// Sums with a number, or of two tensors after broadcasting.
template <RealTensor D>
D operator+(const D& x, double number) {
  using A = accumulate_t<typename D::value_type>;
  return detail::recorded(detail::map_one("add", x, 0, kernels::AddNumber<A>{A(number)}),
                          detail::on(x, [](const D& g) { return g; }));
}
template <RealTensor D>
D operator+(double number, const D& x) {
  return x + number;
}
template <RealTensor D>
D operator-(const D& x, double number) {
  return x + -number;
}
template <RealTensor D>
D operator-(double number, const D& x) {
  return -x + number;
}
template <RealTensor D>
D operator/(double number, const D& x) {
  return pow(x, -1) * number;
}

template <RealTensor D>
D operator+(const D& x, const D& y) {
  return detail::binary(
      "add", x, y, 0b11, 0, detail::Plus(), [](const D&, const D&, const D&, const D& g) { return g; },
      [](const D&, const D&, const D&, const D& g) { return g; });
}
template <RealTensor D>
D operator-(const D& x, const D& y) {
  return detail::binary(
      "subtract", x, y, 0b11, 0, detail::Minus(), [](const D&, const D&, const D&, const D& g) { return g; },
      [](const D&, const D&, const D&, const D& g) { return -g; });
}
template <RealTensor D>
D operator*(const D& x, const D& y) {
  if (&x == &y)  // one operand, so that it moves once
    return detail::function("square", x, detail::Square(), kernels::SquareGradient(), detail::GradientOf::operand);
  return detail::binary(
      "multiply", x, y, 0b01, 0b10, detail::Times(), [](const D&, const D& b, const D&, const D& g) { return g * b; },
      [](const D& a, const D&, const D&, const D& g) { return g * a; });
}
template <RealTensor D>
D operator/(const D& x, const D& y) {
  return detail::binary(
      "divide", x, y, 0b01, 0, detail::Divided(), [](const D&, const D& b, const D&, const D& g) { return g / b; },
      [](const D&, const D& b, const D& z, const D& g) { return -(g * z / b); });
}
/// The larger element; the gradient of equal ones is divided evenly.
template <RealTensor D>
D maximum(const D& x, const D& y) {
  return detail::extreme("maximum", x, y, kernels::Maximum(), 1);
}
/// The smaller of x and y, element by element, after broadcasting.
template <RealTensor D>
D minimum(const D& x, const D& y) {
  return detail::extreme("minimum", x, y, kernels::Minimum(), -1);
}

/// 1 where x > y, else 0; without a gradient.
template <RealTensor D>
auto greater(const D& x, const D& y) {
  using T = typename D::value_type;
  detail::require_one_mesh("greater", x, y);
  const auto kernel = [](auto& device, std::size_t n, const T* a, const T* b, std::uint8_t* z) {
    kernels::compare<T>(device, n, a, b, {}, z, kernels::Greater());
  };
  return detail::zip<std::uint8_t>("greater", detail::broadcast_shape("greater", x, y), 0, 0, kernel, x, y);
}
/// condition != 0 ? x : y, after broadcasting.
template <RealTensor D>
D where(const DTensor<std::uint8_t, typename D::execution_space>& condition, const D& x, const D& y) {
  using T = typename D::value_type;
  detail::require_one_mesh("where", condition, x, y);
  const Shape shape = detail::broadcast_shape("where", x, y, condition);
  const auto kernel = [](auto& device, std::size_t n, const std::uint8_t* c, const T* a, const T* b, T* z) {
    kernels::select<T>(device, n, c, a, b, z);
  };
  const auto part = [condition](const Shape& to, bool chosen) {
    return [=](const D& g) {
      const auto keep = [=](auto& device, std::size_t n, const std::uint8_t* c, const T* from, T* z) {
        kernels::select<T>(device, n, c, chosen ? from : nullptr, chosen ? nullptr : from, z);
      };
      return detail::sum_to(detail::zip<T>("backward", g.shape(), 0b10, 0, keep, condition, g), to);
    };
  };
  const D z = detail::zip<T>("where", shape, 0b110, 0, kernel, condition, x, y);
  return detail::recorded(z, detail::on(x, part(x.shape(), true)), detail::on(y, part(y.shape(), false)));
}
/// x with elements of type U; a term of a sum is rounded by itself.
template <weft::detail::Real U, RealTensor D>
DTensor<U, typename D::execution_space> cast(const D& x) {
  using T = typename D::value_type;
  using Y = DTensor<U, typename D::execution_space>;
  const auto kernel = [](auto& device, std::size_t n, const T* a, U* y) { kernels::cast<T, U>(device, n, a, y); };
  const Y y = detail::zip<U>("cast", x.shape(), 1, 0, kernel, x);
  return detail::recorded(y, detail::on(x, [](const Y& g) { return cast<T>(g); }));
}

}  // namespace weft::dtensor
