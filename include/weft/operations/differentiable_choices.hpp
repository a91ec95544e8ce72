// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choices between elements inside of grad(f, x): relu, elu, abs, clamp, the larger and the smaller of two, and `where`.
// Placements are those of functions.hpp. The choice is a constant: each gradient is masked, and the second derivative by the
// choice is 0.
//
//   auto slope = grad([](const auto& p) { return where(p > 0, square(p), 0.1 * p); }, x);

#include <weft/autograd/nested_variable.hpp>
#include <weft/operations/comparisons.hpp>
#include <weft/operations/differentiable_functions.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/special_functions.hpp>

namespace weft {

namespace detail {

/// The gradient of a in maximum(a, other), as maximum_gradient: equal elements have half each.
template <class A, class B, class G>
auto larger_gradient(const A& a, const B& other, const G& g) {
  const auto& x = bottom_of(a);
  const auto& y = bottom_of(other);
  return 0.5 * (where_gradient(greater(x, y), g, true) + where_gradient(less(x, y), g, false));
}
template <class A, class B, class G>
auto smaller_gradient(const A& a, const B& other, const G& g) {
  const auto& x = bottom_of(a);
  const auto& y = bottom_of(other);
  return 0.5 * (where_gradient(less(x, y), g, true) + where_gradient(greater(x, y), g, false));
}

}  // namespace detail

namespace operations {

/// g where the condition, a tensor, is 1 (`chosen`) or 0, and 0 elsewhere; on any level.
template <AnyTensor N, class C, class G>
auto where_gradient(const N& condition, const Variable<C, G>& g, bool chosen) {
  return detail::linear_in(
      g, [=](const auto& value) { return where_gradient(condition, value, chosen); },
      [=](const auto& h) { return where_gradient(condition, h, chosen); });
}
template <class C, detail::Nested X>
auto relu(const Variable<C, X>& x) {
  return detail::unary(x, relu(x.value()), [](const auto& a, const auto&, const auto& g) {
    return where_gradient(greater(detail::bottom_of(a), 0), g, true);
  });
}
template <class C, detail::Nested X>
auto elu(const Variable<C, X>& x, double alpha = 1) {
  return detail::unary(x, elu(x.value(), alpha), [alpha](const auto& a, const auto& y, const auto& g) {
    const auto positive = greater(detail::bottom_of(a), 0);
    return where_gradient(positive, g, true) + where_gradient(positive, g * (y + alpha), false);
  });
}
template <class C, detail::Nested X>
auto abs(const Variable<C, X>& x) {
  return detail::unary(x, abs(x.value()), [](const auto& a, const auto&, const auto& g) {
    const auto& values = detail::bottom_of(a);
    return where_gradient(greater(values, 0), g, true) - where_gradient(less(values, 0), g, true);
  });
}
template <class C, detail::Nested X>
auto clamp(const Variable<C, X>& x, double lowest, double highest) {
  return detail::unary(x, clamp(x.value(), lowest, highest), [=](const auto& a, const auto&, const auto& g) {
    const auto& values = detail::bottom_of(a);
    return where_gradient(less(values, lowest), where_gradient(greater(values, highest), g, false), false);
  });
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto maximum(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::broadcasting(
      x, y, [](const auto& a, const auto& b) { return maximum(a, b); },
      [](const auto& a, const auto& b, const auto&, const auto& g) { return detail::larger_gradient(a, b, g); },
      [](const auto& a, const auto& b, const auto&, const auto& g) { return detail::larger_gradient(b, a, g); });
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto minimum(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return detail::broadcasting(
      x, y, [](const auto& a, const auto& b) { return minimum(a, b); },
      [](const auto& a, const auto& b, const auto&, const auto& g) { return detail::smaller_gradient(a, b, g); },
      [](const auto& a, const auto& b, const auto&, const auto& g) { return detail::smaller_gradient(b, a, g); });
}
/// The condition may be of any level.
template <AnyVariable N, class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto where(const N& condition, const Variable<C, X>& x,
                                                            const Variable<C, Y>& y) {
  if constexpr (!detail::require_condition<N>()) {
    return detail::AlreadyRefused();
  } else {
    const auto c = detail::bottom_of(condition);
    return detail::broadcasting(
        x, y, [c](const auto& a, const auto& b) { return where(detail::constant_at(a, c), a, b); },
        [c](const auto&, const auto&, const auto&, const auto& g) { return where_gradient(c, g, true); },
        [c](const auto&, const auto&, const auto&, const auto& g) { return where_gradient(c, g, false); });
  }
}
template <AnyVariable N, class C, detail::Nested X>
auto where(const N& condition, const Variable<C, X>& x, double number) {
  return where(condition, x, detail::constant_at(x, detail::number_like(detail::bottom_of(x), number)));
}
template <AnyVariable N, class C, detail::Nested X>
auto where(const N& condition, double number, const Variable<C, X>& x) {
  return where(condition, detail::constant_at(x, detail::number_like(detail::bottom_of(x), number)), x);
}

}  // namespace operations

}  // namespace weft
