// SPDX-License-Identifier: Apache-2.0
#pragma once
// Softmax of rows, its logarithm, and log Σ exp, which a z-loss needs: over whole rows, or over columns that tp cuts.
//
//   auto z = log_sum_exp(context, logits, vocabulary);   // [tokens] of [tokens, vocabulary / tp]
//   auto penalty = dot<double>(z, z);                    // [1]

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <weft/kernels/cross_entropy.hpp>
#include <weft/kernels/rows.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/tensor/fixed_terms.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

template <class X>
void require_softmax_rows(const char* operation, const X& x) {
  require_not_partial<X>();
  static_assert(!columns_cut<X>,
                "weft: softmax, log_softmax and log_sum_exp need whole rows, but an axis cuts the columns: gather them first, "
                "to<Invariant<axis>>(x), on tensors (context, x), or, where tp cuts them, log_sum_exp(context, x, columns)");
  require_dims(operation, x, 2);
  if (x.shape().sharding(1) != DimSharding::even)
    throw_error<LayoutError>({operation, ": dim 1 of ", x.shape().text(), " is padded, which would count"});
}
template <class P>
struct LogSumExpRule {
  static_assert(shard_dim<P> < 1 || (shard_dim<P> == 1 && std::is_same_v<typename P::axis, tp>),
                "weft: log_sum_exp(context, x, columns) is for columns that tp cuts: Shard<tp, 1>");
  static_assert(!std::is_same_v<typename P::axis, tp> || shard_dim<P> == 1,
                "weft: log_sum_exp(context, x, columns) under tp needs columns that tp cuts (Shard<tp, 1>); where each rank has "
                "whole rows, log_sum_exp(x)");
  using type = std::conditional_t<shard_dim<P> == 1, Invariant<typename P::axis>, P>;
};
template <class X>
using row_statistics_t = Tensor<accumulate_t<typename X::value_type>, typename X::execution_space>;
// Softmax of rows, or its logarithm, by their statistics.
template <bool Log, class X, class S>
X normalised(const X& x, const S& log_sums) {
  X out(x.device(), x.shape());
  kernels::normalise_rows<Log, typename X::value_type>(x.device(), x.rows(), x.columns(), x.columns(), x.data(), log_sums.data(),
                                                       nullptr, out.data());
  return out;
}

}  // namespace detail

namespace operations {

/// log Σ exp of each row of x [rows, columns], [rows] in accumulate_t, placed as the rows. x is not Partial and no axis cuts its
/// columns.
template <AnyTensor X>
auto log_sum_exp(const X& x) {
  detail::require_softmax_rows("log_sum_exp", x);
  using T = typename X::value_type;
  detail::row_statistics_t<X> maximum(x.device(), {x.rows()});
  detail::row_numbers_t<X> out(x.device(), {x.rows()});
  kernels::row_max<T>(x.device(), x.rows(), x.columns(), x.columns(), x.data(), maximum.data());
  kernels::exp_sums<T>(x.device(), x.rows(), x.columns(), x.columns(), x.data(), maximum.data(), out.data());
  kernels::finish_log_sum_exp<accumulate_t<T>>(x.device(), x.rows(), maximum.data(), out.data());
  return out;
}
/// The gradient of x, given log_sum_exp(x) and its gradient g [rows]: softmax(x) times g.
template <AnyTensor X, AnyTensor L, AnyTensor G>
gradient_t<X> log_sum_exp_gradient(const X& x, const L& result, const G& g) {
  require_gradient_of<detail::row_numbers_t<X>, G>();
  detail::require_softmax_rows("log_sum_exp_gradient", x);
  detail::require_same_shape("log_sum_exp_gradient", result, g);
  detail::row_size("log_sum_exp_gradient", x, g);
  gradient_t<X> out(x.device(), x.shape());
  kernels::normalise_rows<false, typename X::value_type>(x.device(), x.rows(), x.columns(), x.columns(), x.data(), result.data(),
                                                         g.data(), out.data());
  return out;
}

/// log_sum_exp over columns that tp cuts: x [rows, columns / tp] is Shard<tp, 1>, with padding after the `columns` global
/// columns; the result is [rows], Invariant<tp>. Communication under tp: the row maxima, then the sums. Without tp:
/// log_sum_exp(x) of the first `columns`.
template <class Context, AnyTensor X>
auto log_sum_exp(const Context& context, const X& x, std::size_t columns) {
  require_not_partial<X>();
  using T = typename X::value_type;
  using Out = typename detail::Each<detail::LogSumExpRule, accumulate_t<T>, X>::type;
  detail::require_dims("log_sum_exp", x, 2);
  if (x.shape().sharding(1) > DimSharding::padded)
    throw_error<LayoutError>({"log_sum_exp: dim 1 of ", x.shape().text(), " is cut by segments or held alike by several ranks"});
  const std::size_t first = context.rank(tp{}) * x.columns(),
                    valid = first >= columns ? 0 : std::min(x.columns(), columns - first);
  detail::row_statistics_t<X> maximum(x.device(), {x.rows()});
  Out out(x.device(), {x.rows()});
  kernels::row_max<T>(x.device(), x.rows(), x.columns(), valid, x.data(), maximum.data());
  if constexpr (Context::has(tp{})) context.comm(tp{}).all_reduce(raw(maximum), Reduction::max);
  kernels::exp_sums<T>(x.device(), x.rows(), x.columns(), valid, x.data(), maximum.data(), out.data());
  if constexpr (Context::has(tp{})) {
    detail::refuse_loose_sum(x.device(), "log_sum_exp");
    context.comm(tp{}).all_reduce(raw(out));
  }
  kernels::finish_log_sum_exp<accumulate_t<T>>(x.device(), x.rows(), maximum.data(), out.data());
  return out;
}
/// The gradient of x, given log_sum_exp(context, x, columns) and its gradient g [rows]: this rank's columns of softmax(x) times
/// g, 0 in padding. No communication.
template <class Context, AnyTensor X, AnyTensor L, AnyTensor G>
gradient_t<X> log_sum_exp_gradient(const Context& context, const X& x, std::size_t columns, const L& result, const G& g) {
  require_gradient_of<typename detail::Each<detail::LogSumExpRule, accumulate_t<typename X::value_type>, X>::type, G>();
  detail::require_same_shape("log_sum_exp_gradient", result, g);
  detail::row_size("log_sum_exp_gradient", x, g);
  const std::size_t first = context.rank(tp{}) * x.columns(),
                    valid = first >= columns ? 0 : std::min(x.columns(), columns - first);
  gradient_t<X> out(x.device(), x.shape());
  kernels::normalise_rows<false, typename X::value_type>(x.device(), x.rows(), x.columns(), valid, x.data(), result.data(),
                                                         g.data(), out.data());
  return out;
}

/// Softmax of each row of x [rows, columns], placed as x. x is not Partial and no axis cuts its columns.
template <AnyTensor X>
X softmax(const X& x) {
  return detail::normalised<false>(x, log_sum_exp(x));
}
/// The gradient of x, given y = softmax(x) and its gradient.
template <AnyTensor Y, AnyTensor G>
G softmax_gradient(const Y& y, const G& g) {
  require_gradient_of<Y, G>();
  detail::require_softmax_rows("softmax_gradient", y);
  detail::require_same_shape("softmax_gradient", y, g);
  G out(y.device(), y.shape());
  kernels::softmax_backward<typename Y::value_type>(y.device(), y.rows(), y.columns(), y.data(), g.data(), out.data());
  return out;
}

/// Log softmax of each row of x [rows, columns], placed as x. x is not Partial and no axis cuts its columns.
template <AnyTensor X>
X log_softmax(const X& x) {
  return detail::normalised<true>(x, log_sum_exp(x));
}
/// The gradient of x, given y = log_softmax(x) and its gradient.
template <AnyTensor Y, AnyTensor G>
G log_softmax_gradient(const Y& y, const G& g) {
  require_gradient_of<Y, G>();
  detail::require_softmax_rows("log_softmax_gradient", y);
  detail::require_same_shape("log_softmax_gradient", y, g);
  G out(y.device(), y.shape());
  kernels::log_softmax_backward<typename Y::value_type>(y.device(), y.rows(), y.columns(), y.data(), g.data(), out.data());
  return out;
}

}  // namespace operations

}  // namespace weft
