// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums and means of placed tensors. If an axis cuts the summed dim, the result is Partial there, a term of the sum; the type
// carries this until the terms are reduced. Sums are kept in accumulate_t.
//
//   auto variance = mean_columns(square(x));                       // [rows]
//   gain.accumulate(context, sum_groups(times(g, n), width));      // [width], Partial if an axis cuts heads or rows

#include <cstddef>
#include <type_traits>

#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/rows.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// The kind of the summed numbers. It matters if several ranks hold the same element (key-value heads fewer than ranks,
/// ParameterSharding). Each rank has the same values, so a sum over ranks would count them several times: refused
/// (LayoutError), as are values in padding. Each rank has a term of a gradient, and all terms count.
enum class Of { values, gradients };

namespace detail {

template <template <class> class Rule, class S, class X>
struct Each;
template <template <class> class Rule, class S, class T, class E, class... P>
struct Each<Rule, S, Tensor<T, E, P...>> {
  using type = Tensor<S, E, typename Rule<P>::type...>;
};

// One number for each row; rows are dim 0.
template <class P>
struct RowRule {
  using type = std::conditional_t<(shard_dim<P> >= 1), Partial<typename P::axis>, P>;
};
// One number, or one for each column summed over heads.
template <class P>
struct SumRule {
  using type = std::conditional_t<(shard_dim<P> >= 0), Partial<typename P::axis>, P>;
};
// The sum of a product of two tensors.
template <class X, class Y>
struct DotRule {
  static constexpr bool alike = std::is_same_v<X, Y> && kind_of<X> != Kind::partial;
  static constexpr bool linear = (kind_of<X> == Kind::partial && is_whole<Y>) || (is_whole<X> && kind_of<Y> == Kind::partial);
  static_assert(same_axis<X, Y> && (alike || linear),
                "weft: dot: both lie alike, or one is Partial and the other whole on the axis (Partial by Partial is not the sum "
                "of products); bring one to the other's layout: to_layout_of(x, y), on tensors to_layout_of<X>(context, y)");
  using type = std::conditional_t<linear, Partial<typename X::axis>, typename SumRule<X>::type>;
};

template <class X>
using row_numbers_t = typename Each<RowRule, accumulate_t<typename X::value_type>, X>::type;
template <class X, class S>
using summed_t = typename Each<SumRule, S, X>::type;

template <class X>
inline constexpr bool columns_cut = false;
template <class T, class E, class... P>
inline constexpr bool columns_cut<Tensor<T, E, P...>> = ((shard_dim<P> >= 1) || ...);

void require_dims(const char* operation, NamedOperand x, std::size_t dims);
void require_counted_once(const char* operation, const Shape& shape, Of of);

// out [1]: the sum of a[i] b[i], or of a[i] if b is null.
template <AnyTensor Y, class T>
void sum_products(const Y& out, std::size_t size, const T* a, const T* b) {
  if constexpr (std::is_same_v<typename Y::value_type, double>) {
    kernels::dot<T>(out.device(), size, a, b, out.data());
  } else {
    const Tensor<double, typename Y::execution_space> sum(out.device(), {1});
    kernels::dot<T>(out.device(), size, a, b, sum.data());
    kernels::fill_scalar(out.device(), 1, static_cast<const double*>(sum.data()), out.data());
  }
}
template <class S, class X>
using number_or = std::conditional_t<std::is_void_v<S>, accumulate_t<typename X::value_type>, S>;

}  // namespace detail

namespace operations {

/// The sum of each row of x [rows, columns], [rows] in accumulate_t; Partial on an axis that cuts columns, else placed as x.
/// Throws LayoutError for values if several ranks hold the same ones.
template <AnyTensor X>
auto sum_columns(const X& x, Of of = Of::values) {
  detail::require_dims("sum_columns", x, 2);
  detail::require_counted_once("sum_columns", x.shape(), of);
  detail::row_numbers_t<X> out(x.device(), {x.rows()});
  kernels::row_sums<typename X::value_type>(x.device(), x.rows(), x.columns(), x.data(), 1, out.data());
  return out;
}
/// The gradient of x, given the gradient `g` [rows] of sum_columns(x): g in every column. No communication.
template <AnyTensor X, AnyTensor G>
gradient_t<X> sum_columns_gradient(const X& x, const G& g) {
  require_gradient_of<detail::row_numbers_t<X>, G>();
  const std::size_t columns = detail::row_size("sum_columns_gradient", x, g);
  gradient_t<X> out(x.device(), x.shape());
  kernels::spread_column(x.device(), g.size(), columns, g.data(), 1, out.data());
  return out;
}

/// The mean of each row of x [rows, columns], [rows] in accumulate_t; no axis may cut the columns. Partial stays Partial.
template <AnyTensor X>
auto mean_columns(const X& x) {
  static_assert(!detail::columns_cut<X>,
                "weft: mean_columns needs whole rows, but an axis cuts the columns: gather them first, "
                "to<Invariant<axis>>(x), on tensors (context, x), or scale(sum_columns(x), 1.0 / whole_columns(context, x))");
  detail::require_dims("mean_columns", x, 2);
  detail::require_counted_once("mean_columns", x.shape(), Of::values);
  detail::row_numbers_t<X> out(x.device(), {x.rows()});
  kernels::row_sums<typename X::value_type>(x.device(), x.rows(), x.columns(), x.data(),
                                            accumulate_t<typename X::value_type>(1.0 / double(x.columns())), out.data());
  return out;
}
/// The gradient of x, given the gradient `g` [rows] of mean_columns(x): g / columns in every column.
template <AnyTensor X, AnyTensor G>
gradient_t<X> mean_columns_gradient(const X& x, const G& g) {
  require_gradient_of<detail::row_numbers_t<X>, G>();
  const std::size_t columns = detail::row_size("mean_columns_gradient", x, g);
  gradient_t<X> out(x.device(), x.shape());
  kernels::spread_column(x.device(), g.size(), columns, g.data(), accumulate_t<typename X::value_type>(1.0 / double(columns)),
                         out.data());
  return out;
}

/// The sum of all elements, [1], added in double and rounded to S (accumulate_t by default; a loss is double). Partial on an axis
/// that shards x, else placed as x.
template <class S = void, AnyTensor X>
auto sum_all(const X& x, Of of = Of::values) {
  detail::require_counted_once("sum_all", x.shape(), of);
  detail::summed_t<X, detail::number_or<S, X>> out(x.device(), {1});
  detail::sum_products<decltype(out), typename X::value_type>(out, x.size(), x.data(), nullptr);
  return out;
}
/// The gradient of x, given the gradient `g` [1] of sum_all(x): g everywhere.
template <AnyTensor X, AnyTensor G>
gradient_t<X> sum_all_gradient(const X& x, const G& g) {
  require_gradient_of<detail::summed_t<X, typename G::value_type>, G>();
  detail::require_one("sum_all_gradient", g);
  gradient_t<X> out(x.device(), x.shape());
  kernels::fill_scalar(x.device(), x.size(), g.data(), out.data());
  return out;
}

/// The sum over all elements of x times y, [1], added in double and rounded to S (accumulate_t by default). On each axis both are
/// placed alike (Shard gives Partial), or one is Partial and the other whole (Partial). Gradients, of g [1]: times_scalar(y, g)
/// and times_scalar(x, g).
template <class S = void, AnyTensor X, AnyTensor Y>
auto dot(const X& x, const Y& y, Of of = Of::values) {
  detail::require_same_scalar<X, Y>();
  typename detail::Pairwise<detail::DotRule, X, Y>::template as<detail::number_or<S, X>> out(x.device(), {1});
  detail::require_same_shape("dot", x, y);
  detail::require_counted_once("dot", x.shape().with_cuts_of(y.shape()), of);
  if constexpr (std::is_same_v<typename X::value_type, typename Y::value_type>)
    detail::sum_products(out, x.size(), static_cast<const typename X::value_type*>(x.data()),
                         static_cast<const typename X::value_type*>(y.data()));
  return out;
}

/// The gradient of x, given the gradient `g` [columns] of sum_rows(x): g in every row.
template <AnyTensor X, AnyTensor G>
gradient_t<X> sum_rows_gradient(const X& x, const G& g) {
  require_gradient_of<typename detail::SummedRows<X>::type, G>();
  detail::require_extents("sum_rows_gradient", x, x.columns(), g);
  gradient_t<X> out(x.device(), x.shape());
  kernels::spread_row(x.device(), x.rows(), x.columns(), g.data(), out.data());
  return out;
}

/// The sum over rows and groups of x [rows, groups * width], [width] in accumulate_t, as for heads that share a gain. Partial on
/// an axis that cuts rows or groups; a rank holds whole groups (ShapeError).
template <AnyTensor X>
auto sum_groups(const X& x, std::size_t width, Of of = Of::values) {
  detail::require_dims("sum_groups", x, 2);
  if (width == 0 || x.columns() % width != 0)
    throw_error<ShapeError>({detail::call_text("sum_groups", {x}), ": the columns are not whole groups of ", width});
  detail::require_counted_once("sum_groups", x.shape(), of);
  detail::summed_t<X, accumulate_t<typename X::value_type>> out(x.device(), {width});
  kernels::column_sums<typename X::value_type>(x.device(), x.size() / width, width, x.data(), width, out.data(), false);
  return out;
}

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/reductions_impl.hpp>
#endif
