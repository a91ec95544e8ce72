// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of this folder on Variables: each computes its result, and records how the gradients of its operands follow from
// that of the result. A parameter may be the second operand of a product, a bias or a gain; its gradient is then computed
// with the other weight gradients.
//
//   auto y = times_row(matmul(x, weight) + bias, gain);   // x a Variable; weight, bias and gain Parameters

#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/operations/refused_standard.hpp>
#include <weft/operations/softmax.hpp>
#include <weft/operations/views.hpp>

namespace weft {

namespace detail {
// Refuses moves of rows of samples, whose order would depend on the ranks of a domain axis.
template <class From, class To>
constexpr bool keeps_order_of_rows() {
  using Rows = Shard<typename To::axis, 0>;
  constexpr bool cut = std::is_same_v<From, Rows> && is_whole<To>, whole = std::is_same_v<To, Rows> && is_whole<From>,
                 keeps = !is_domain_axis<typename To::axis> || !(cut || whole);
  static_assert(
      keeps,
      "weft: a domain axis cuts each sample, so these rows are [samples, the rank's nodes], and gathered ones would have "
      "another order than on one rank: split_samples(x) first, then to<Invariant<axis>>");
  return keeps;
}
}  // namespace detail

/// x with the placement To on To's axis; the backward is the dual collective (tensor/to.hpp).
template <Placement To, class C, class X>
auto to(const Variable<C, X>& x) {
  using From = placement_t<X, typename To::axis>;
  if constexpr (!detail::moves_without_edges<From, To>() || !detail::keeps_order_of_rows<From, To>())
    return detail::AlreadyRefused();
  else return detail::record(x, to<To>(x.context(), x.value()), detail::from(x, [](const auto&, const auto& g) { return g; }));
}
/// y with x's placement on every axis: `x + to_layout_of(x, y)` adds a Partial y after its all-reduce (or reduce-scatter).
template <class C, class X, class Y>
auto to_layout_of(const Variable<C, X>&, const Variable<C, Y>& y) {
  return detail::record(y, to_layout_of<X>(y.context(), y.value()),
                        detail::from(y, [](const auto&, const auto& g) { return g; }));
}

namespace detail {
// Prints why the operands cannot be multiplied.
template <class L, class R, int LI, int RJ>
AlreadyRefused refused_product() {
  (void)sizeof(Contract<L, R, LI, RJ>);
  return {};
}
}  // namespace detail

template <Placement To>
detail::AlreadyRefused to(detail::AlreadyRefused refused) {
  return refused;
}
/// Refuses x.value() in a forward.
template <Placement To, AnyTensor X>
detail::AlreadyRefused to(const X&) {
  static_assert(
      !AnyTensor<X>,
      "weft: to<Placement>(tensor) without a context: in a Module's forward give it the Variable, to<Placement>(x), since "
      "x.value() is a constant to backward; a tensor takes the context first, to<Placement>(context, x)");
  return {};
}
template <class X, class Y>
requires(std::is_same_v<X, detail::AlreadyRefused> || std::is_same_v<Y, detail::AlreadyRefused>) detail::AlreadyRefused
    to_layout_of(const X&, const Y&) {
  return {};
}

namespace operations {

/// x [tokens, in] times wᵀ, w [out, in] -> [tokens, out], as for tensors.
template <class C, class X, class W>
auto matmul(const Variable<C, X>& x, const Variable<C, W>& w) {
  if constexpr (!detail::contract_fits<X, W, 0, 0>) return detail::refused_product<X, W, 0, 0>();
  else
    return detail::record(x, matmul(x.value(), w.value()),
                          detail::from(x, [w = w.value()](const auto&, const auto& g) { return matmul_input_gradient(g, w); }),
                          detail::from(w, [x = x.value()](const auto&, const auto& g) { return matmul_weight_gradient(g, x); }));
}
template <class C, class X, Placement... R>
auto matmul(const Variable<C, X>& x, const Parameter<R...>& w) {
  using W = decltype(w.for_operand(x.value()));
  if constexpr (!detail::contract_fits<X, W, 0, 0>) return detail::refused_product<X, W, 0, 0>();
  else
    return detail::record(
        x, matmul(x.value(), w.for_operand(x.value())),
        detail::from(
            x, [w](const auto&, const auto& g) { return matmul_input_gradient(g, w.template for_operand_type<X>(g.device())); }),
        detail::from(w, [x = x.value()](const auto&, auto& weight, const auto& g) { accumulate_product(weight, g, x); }));
}
// Refuses a temporary, which no longer exists in backward: hold it as a member. All operations below do the same.
template <class C, class X, Placement... R>
detail::AlreadyRefused matmul(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}

/// x + y, placed alike or broadcast, as for tensors; of a parameter [columns], added to each row.
template <class C, class X, class Y>
auto operator+(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (!detail::Broadcast<detail::Arithmetic::sum, X, Y>::fits) {
    add(x.value(), y.value());
    return detail::AlreadyRefused();
  } else {
    return detail::record(
        x, add(x.value(), y.value()),
        detail::from(x, [shape = x.shape()](const auto&, const auto& g) { return detail::sum_repeated<X>(shape, g); }),
        detail::from(y, [shape = y.shape()](const auto&, const auto& g) { return detail::sum_repeated<Y>(shape, g); }));
  }
}
template <class C, class X, Placement... R>
auto operator+(const Variable<C, X>& x, const Parameter<R...>& bias) {
  auto sum = add_row(x.value(), bias.for_operand(x.value()));
  if constexpr (!detail::RowRules<X, decltype(bias.for_operand(x.value()))>::bias) return detail::AlreadyRefused();
  else
    return detail::record(
        x, std::move(sum), detail::from(x, [](const auto&, const auto& g) { return g; }),
        detail::from(bias, [](const auto& context, auto& b, const auto& g) { b.accumulate(context, sum_rows(g)); }));
}
template <class C, class X, Placement... R>
detail::AlreadyRefused operator+(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}
template <class C, class X, Placement... R>
auto operator+(const Parameter<R...>& bias, const Variable<C, X>& x) {
  return x + bias;
}
template <class C, class X, Placement... R>
detail::AlreadyRefused operator+(const Parameter<R...>&&, const Variable<C, X>&) {
  return detail::refused_temporary<X>();
}
/// x - y, as x + y; a parameter [columns] subtracted from each row.
template <class C, class X, class Y>
auto operator-(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (!detail::Broadcast<detail::Arithmetic::sum, X, Y>::fits) {
    subtract(x.value(), y.value());
    return detail::AlreadyRefused();
  } else {
    return detail::record(
        x, subtract(x.value(), y.value()),
        detail::from(x, [shape = x.shape()](const auto&, const auto& g) { return detail::sum_repeated<X>(shape, g); }),
        detail::from(y,
                     [shape = y.shape()](const auto&, const auto& g) { return scale(detail::sum_repeated<Y>(shape, g), -1); }));
  }
}
template <class C, class X, Placement... R>
auto operator-(const Variable<C, X>& x, const Parameter<R...>& bias) {
  return detail::record(
      x, add_row(x.value(), scale(bias.for_operand(x.value()), -1)),
      detail::from(x, [](const auto&, const auto& g) { return g; }),
      detail::from(bias, [](const auto& context, auto& b, const auto& g) { b.accumulate(context, scale(sum_rows(g), -1)); }));
}
template <class C, class X, Placement... R>
detail::AlreadyRefused operator-(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}
/// The product element by element, broadcast as for tensors; of a parameter [columns], with each row.
template <class C, class X, class Y>
auto operator*(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (!detail::Broadcast<detail::Arithmetic::product, X, Y>::fits) {
    times(x.value(), y.value());
    return detail::AlreadyRefused();
  } else {
    return detail::record(
        x, times(x.value(), y.value()),
        detail::from(x, [y = y.value(), shape = x.shape()](
                            const auto&, const auto& g) { return detail::sum_repeated<X>(shape, times(g, y)); }),
        detail::from(y, [x = x.value(), shape = y.shape()](const auto&, const auto& g) {
          return detail::sum_repeated<Y>(shape, times(g, x));
        }));
  }
}
template <class C, class X, Placement... R>
auto operator*(const Variable<C, X>& x, const Parameter<R...>& gain) {
  return times_row(x, gain);
}
template <class C, class X, Placement... R>
auto times_row(const Variable<C, X>& x, const Parameter<R...>& gain) {
  return detail::record(
      x, times_row(x.value(), gain.for_operand(x.value())),
      detail::from(x, [gain](const auto&, const auto& g) { return times_row(g, gain.template for_operand_type<X>(g.device())); }),
      detail::from(gain, [x = x.value()](const auto& context, auto& to, const auto& g) {
        to.accumulate(context, sum_rows(times(g, x)));
      }));
}
template <class C, class X, Placement... R>
detail::AlreadyRefused operator*(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}
template <class C, class X, Placement... R>
detail::AlreadyRefused times_row(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}
template <class C, class X, Placement... R>
auto operator*(const Parameter<R...>& gain, const Variable<C, X>& x) {
  return times_row(x, gain);
}
template <class C, class X, Placement... R>
detail::AlreadyRefused operator*(const Parameter<R...>&&, const Variable<C, X>&) {
  return detail::refused_temporary<X>();
}
/// x / y, element by element.
template <class C, class X, class Y>
auto operator/(const Variable<C, X>& x, const Variable<C, Y>& y) {
  auto quotient = divide(x.value(), y.value());
  if constexpr (!detail::Broadcast<detail::Arithmetic::quotient, X, Y>::fits) return detail::AlreadyRefused();
  else
    return detail::record(
        x, quotient,
        detail::from(x, [y = y.value(), shape = x.shape()](
                            const auto&, const auto& g) { return detail::sum_repeated<X>(shape, divide(g, y)); }),
        detail::from(y, [quotient, y = y.value()](const auto&, const auto& g) {
          return scale(detail::sum_repeated<Y>(y.shape(), divide(times(g, quotient), y)), -1);
        }));
}
/// x times a number, any placement. A loss has a LossWeight in place of the number (operations/own_loss.hpp).
template <class C, AnyTensor X>
auto scale(const Variable<C, X>& x, double factor) {
  if constexpr (!detail::Real<typename X::value_type>) return detail::refused_whole_numbers<X>();
  else
    return detail::record(x, scale(x.value(), factor),
                          detail::from(x, [factor](const auto&, const auto& g) { return scale(g, factor); }));
}
template <class C, AnyTensor X>
auto operator*(const Variable<C, X>& x, double factor) {
  return scale(x, factor);
}
template <class C, AnyTensor X>
auto operator*(double factor, const Variable<C, X>& x) {
  return scale(x, factor);
}
template <class C, AnyTensor X>
auto operator/(const Variable<C, X>& x, double divisor) {
  return scale(x, 1 / divisor);
}
template <class C, class X>
auto operator-(const Variable<C, X>& x) {
  return scale(x, -1);
}

// x += y computes x + y and makes x a handle of the result; other handles of x's value keep it.
#define WEFT_ASSIGNING(op)                                                                                                    \
  template <class C, class X, class Y>                                                                                        \
  Variable<C, X>& operator op##=(Variable<C, X>& x, const Y& y) {                                                             \
    auto result = x op y;                                                                                                     \
    constexpr bool same = std::is_same_v<decltype(result), Variable<C, X>>, refused = detail::is_silent<decltype(result)>;    \
    static_assert(same || refused, "weft: operator" #op                                                                       \
                                   "=: the result has another type (placements) than its first operand, which cannot hold "   \
                                   "it: write auto z = x " #op " y");                                                         \
    if constexpr (same) x = std::move(result);                                                                                \
    return x;                                                                                                                 \
  }                                                                                                                           \
  template <class C, class X, class Y>                                                                                        \
  detail::AlreadyRefused operator op##=(const Variable<C, X>&, const Y&) {                                                    \
    static_assert(sizeof(Y) == 0, "weft: operator" #op                                                                        \
                                  "=: the first operand is const, such as a forward's argument: write auto z = x " #op " y"); \
    return {};                                                                                                                \
  }                                                                                                                           \
  template <class Y>                                                                                                          \
  detail::AlreadyRefused operator op##=(detail::AlreadyRefused refused, const Y&) {                                           \
    return refused;                                                                                                           \
  }
WEFT_ASSIGNING(+)
WEFT_ASSIGNING(-)
WEFT_ASSIGNING(*)
WEFT_ASSIGNING(/)
#undef WEFT_ASSIGNING

}  // namespace operations

}  // namespace weft
