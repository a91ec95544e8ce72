// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums and softmax inside of grad(f, x), and the gradients of sums, which spread a value over the summed elements. Placements and
// shapes are those of reductions.hpp and along_dim.hpp.

#include <type_traits>

#include <weft/autograd/nested_variable.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/differentiable_parts.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/operations/variable_rows.hpp>

namespace weft {

namespace detail {
/// f of x as [rows, extent of the last dim], in x's shape.
template <class C, class X, class F>
auto over_rows(const Variable<C, X>& x, F f) {
  if constexpr (!require_last_dim_whole<bottom_t<X>>()) {
    return AlreadyRefused();
  } else {
    const Shape& shape = x.shape();
    const std::size_t last = shape[std::size_t(last_dim(bottom_of(x)))];
    return reshape(f(reshape(x, {last == 0 ? 0 : shape.size() / last, last})), shape);
  }
}
}  // namespace detail

namespace operations {

/// The gradients of sums, g over the elements of x, on Variables of any level.
template <class C, class X, class G>
auto sum_all_gradient(const Variable<C, X>& x, const Variable<C, G>& g) {
  return detail::linear_in(
      g, [a = x.value()](const auto& value) { return sum_all_gradient(a, value); },
      [](const auto& h) {
        if constexpr (AnyTensor<decltype(h)>) return sum_all(h, Of::gradients);
        else return sum_all(h);
      });
}
template <class C, class X, class G>
auto sum_rows_gradient(const Variable<C, X>& x, const Variable<C, G>& g) {
  return detail::linear_in(
      g, [a = x.value()](const auto& value) { return sum_rows_gradient(a, value); }, [](const auto& h) { return sum_rows(h); });
}
template <class C, class X, class G>
auto sum_columns_gradient(const Variable<C, X>& x, const Variable<C, G>& g) {
  return detail::linear_in(
      g, [a = x.value()](const auto& value) { return sum_columns_gradient(a, value); },
      [](const auto& h) {
        if constexpr (AnyTensor<decltype(h)>) return sum_columns(h, Of::gradients);
        else return sum_columns(h);
      });
}
template <int Dim, class C, class X, class G>
auto sum_gradient(const Variable<C, X>& x, const Variable<C, G>& g) {
  return detail::linear_in(
      g, [a = x.value()](const auto& value) { return sum_gradient<Dim>(a, value); },
      [](const auto& h) {
        if constexpr (AnyTensor<decltype(h)>) return sum<Dim>(h, Of::gradients);
        else return sum<Dim>(h);
      });
}

template <class C, detail::Nested X>
auto sum_all(const Variable<C, X>& x) {
  return detail::unary(x, sum_all(x.value()), [](const auto& a, const auto&, const auto& g) { return sum_all_gradient(a, g); });
}
template <class C, detail::Nested X>
auto sum(const Variable<C, X>& x) {
  return sum_all(x);
}
template <class C, detail::Nested X>
auto sum_rows(const Variable<C, X>& x) {
  return detail::unary(x, sum_rows(x.value()), [](const auto& a, const auto&, const auto& g) { return sum_rows_gradient(a, g); });
}
template <class C, detail::Nested X>
auto sum_columns(const Variable<C, X>& x) {
  return detail::unary(x, sum_columns(x.value()),
                       [](const auto& a, const auto&, const auto& g) { return sum_columns_gradient(a, g); });
}
template <class C, detail::Nested X>
auto mean_columns(const Variable<C, X>& x) {
  return detail::unary(x, mean_columns(x.value()), [](const auto& a, const auto&, const auto& g) {
    return scale(sum_columns_gradient(a, g), 1.0 / double(a.columns()));
  });
}
template <int Dim, class C, detail::Nested X>
auto sum(const Variable<C, X>& x) {
  return detail::unary(x, sum<Dim>(x.value()), [](const auto& a, const auto&, const auto& g) { return sum_gradient<Dim>(a, g); });
}
template <int Dim, class C, detail::Nested X>
auto mean(const Variable<C, X>& x) {
  using B = detail::bottom_t<X>;
  if constexpr (detail::cut_in_space_at<B, Dim>)
    return scale(sum<Dim>(x), 1 / detail::extent_over_space<B, Dim>(x.context(), x.shape()[Dim]));
  else
    return detail::unary(x, mean<Dim>(x.value()), [](const auto& a, const auto&, const auto& g) {
      return scale(sum_gradient<Dim>(a, g), 1.0 / double(a.shape()[Dim]));
    });
}
template <class C, detail::Nested X>
auto mean(const Variable<C, X>& x) {
  return detail::unary(x, mean(x.value()), [](const auto& a, const auto&, const auto& g) {
    return scale(sum_all_gradient(a, g), 1.0 / double(a.shape().size()));
  });
}

template <int Dim, class C, detail::Nested X>
auto softmax(const Variable<C, X>& x) {
  return detail::unary(x, softmax<Dim>(x.value()), [](const auto& a, const auto& y, const auto& g) {
    return (g - sum_gradient<Dim>(a, sum<Dim>(g * y))) * y;
  });
}

template <int Dim, class C, detail::Nested X>
auto log_softmax(const Variable<C, X>& x) {
  return detail::unary(x, log_softmax<Dim>(x.value()), [](const auto& a, const auto& y, const auto& g) {
    return g - sum_gradient<Dim>(a, sum<Dim>(g)) * exp(y);
  });
}
/// log Σ exp of each row, [rows].
template <class C, detail::Nested X>
auto log_sum_exp(const Variable<C, X>& x) {
  return detail::unary(x, log_sum_exp(x.value()),
                       [](const auto& a, const auto&, const auto& g) { return times_column(softmax<1>(a), g); });
}

/// softmax(x) and log_softmax(x) along the last dim.
template <class C, detail::Nested X>
auto softmax(const Variable<C, X>& x) {
  return detail::over_rows(x, [](const auto& rows) { return softmax<1>(rows); });
}
template <class C, detail::Nested X>
auto log_softmax(const Variable<C, X>& x) {
  return detail::over_rows(x, [](const auto& rows) { return log_softmax<1>(rows); });
}

}  // namespace operations

}  // namespace weft
