// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums, means and products over rows and columns on Variables, and functions with a given derivative.
//
//   auto inverse = 1.0 / sqrt(mean_columns(square(x)) + 1e-5);   // [tokens]
//   return times_column(x, inverse) * gain;

#include <type_traits>

#include <weft/autograd/variable.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/heads.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/operations/softmax.hpp>
#include <weft/operations/variables.hpp>

namespace weft {

namespace detail {
// A gradient in the element type of the tensor that it is of.
template <class X, class G>
auto in_type_of(const G& g) {
  if constexpr (std::is_same_v<typename X::value_type, typename G::value_type>) return g;
  else return cast<typename X::value_type>(g);
}
// x [rows, ...] as a matrix, for sums of each row.
template <class X>
X matrix_of(const X& x) {
  return view_of<X>(x, {x.shape()[0], x.shape()[0] == 0 ? 0 : x.size() / x.shape()[0]});
}
}  // namespace detail

namespace operations {

/// Sums and means over the columns of x [rows, columns], [rows], and the sum over its rows, [columns]; of a Partial x Partial.
template <class C, class X>
auto sum_columns(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, sum_columns(x.value()),
                                    [x = x.value()](const auto& g) { return sum_columns_gradient(x, g); });
}
template <class C, class X>
auto mean_columns(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, mean_columns(x.value()),
                                    [x = x.value()](const auto& g) { return mean_columns_gradient(x, g); });
}
template <class C, class X>
auto sum_rows(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, sum_rows(x.value()), [x = x.value()](const auto& g) { return sum_rows_gradient(x, g); });
}
/// The sum of all elements, [1].
template <class C, class X>
auto sum_all(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, sum_all(x.value()), [x = x.value()](const auto& g) { return sum_all_gradient(x, g); });
}

/// x times s [1]; each row of x [rows, ...] times its number in v [rows], and divided by it.
template <class C, class X, class S>
auto times_scalar(const Variable<C, X>& x, const Variable<C, S>& s) {
  return detail::record(
      x, times_scalar(x.value(), s.value()),
      detail::from(x, [s = s.value()](const auto&, const auto& g) { return times_scalar(g, s); }),
      detail::from(s, [x = x.value()](const auto&, const auto& g) { return dot<typename S::value_type>(x, g, Of::gradients); }));
}
template <class C, class X, class V>
auto times_column(const Variable<C, X>& x, const Variable<C, V>& v) {
  return detail::record(x, times_column(x.value(), v.value()),
                        detail::from(x, [v = v.value()](const auto&, const auto& g) { return times_column(g, v); }),
                        detail::from(v, [x = x.value()](const auto&, const auto& g) {
                          return detail::in_type_of<V>(sum_columns(detail::matrix_of(times(x, g)), Of::gradients));
                        }));
}
template <class C, class X, class V>
auto divide_column(const Variable<C, X>& x, const Variable<C, V>& v) {
  return times_column(x, 1.0 / v);
}

/// Heads of x [tokens, heads, width]: all of them times gain [width], each times its number in v [tokens, heads], the sum and the
/// mean of each.
template <class C, class X, Placement... R>
auto times_heads(const Variable<C, X>& x, const Parameter<R...>& gain) {
  return detail::record(
      x, times_heads(x.value(), gain.for_operand(x.value())),
      detail::from(x,
                   [gain](const auto&, const auto& g) { return times_heads(g, gain.template for_operand_type<X>(g.device())); }),
      detail::from(gain, [x = x.value()](const auto& context, auto& to, const auto& g) {
        to.accumulate(context, sum_heads(times(x, g), Of::gradients));
      }));
}
template <class C, class X, Placement... R>
detail::AlreadyRefused times_heads(const Variable<C, X>&, const Parameter<R...>&&) {
  return detail::refused_temporary<X>();
}
template <class C, class X, class V>
auto times_each_head(const Variable<C, X>& x, const Variable<C, V>& v) {
  return detail::record(
      x, times_each_head(x.value(), v.value()),
      detail::from(x, [v = v.value()](const auto&, const auto& g) { return times_each_head(g, v); }),
      detail::from(v, [x = x.value()](const auto&, const auto& g) { return detail::in_type_of<V>(sum_each_head(times(x, g))); }));
}
template <class C, class X>
auto sum_each_head(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, sum_each_head(x.value()),
                                    [x = x.value()](const auto& g) { return sum_each_head_gradient(x, g); });
}
template <class C, class X>
auto mean_each_head(const Variable<C, X>& x) {
  return detail::record_by_gradient(x, mean_each_head(x.value()),
                                    [x = x.value()](const auto& g) { return mean_each_head_gradient(x, g); });
}

/// log Σ exp of each row, [rows]; with a number of columns, also if tp cuts them.
template <class C, class X>
auto log_sum_exp(const Variable<C, X>& x) {
  auto y = log_sum_exp(x.value());
  return detail::record(
      x, y, detail::from(x, [x = x.value(), y](const auto&, const auto& g) { return log_sum_exp_gradient(x, y, g); }));
}
template <class C, class X>
auto log_sum_exp(const Variable<C, X>& x, std::size_t columns) {
  auto y = log_sum_exp(x.context(), x.value(), columns);
  return detail::record(x, y, detail::from(x, [x = x.value(), y, columns](const auto& context, const auto& g) {
                          return log_sum_exp_gradient(context, x, columns, y, g);
                        }));
}

/// f of every element, with its derivative by the element; both take and return accumulate_t.
template <class C, class X, class F, class D>
auto map(const Variable<C, X>& x, F f, D derivative) {
  return detail::record(x, map(x.value(), f), detail::from(x, [x = x.value(), derivative](const auto&, const auto& g) {
                          return chain(x, g, derivative);
                        }));
}

}  // namespace operations

}  // namespace weft
