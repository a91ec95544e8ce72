// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations on [tokens, heads, width] (split_heads): one number for each head of each token, and one gain for all heads. An axis
// may cut tokens (Shard<A, 0>) or heads (Shard<A, 1>), never a head's width. The number of dims is not in a tensor's type, so it
// is checked when an operation runs: these refuse a matrix, as those of a matrix refuse three dims.
//
//   auto by_heads = split_heads(x, width);                          // Shard<tp, 1>: heads
//   auto y = times_heads(by_heads, gain.for_operand(by_heads));     // gain [width], Replicated<tp>
//   gain.accumulate(context, sum_heads(times(by_heads, g), Of::gradients));   // [width], Partial<tp>

#include <type_traits>

#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/rows.hpp>
#include <weft/operations/elementwise.hpp>
#include <weft/operations/reductions.hpp>
#include <weft/operations/views.hpp>

namespace weft {

namespace detail {

template <class P>
struct SameRule {
  using type = P;
};
template <class X>
using head_numbers_t = typename Each<SameRule, accumulate_t<typename X::value_type>, X>::type;

template <class X>
void require_heads(const char* operation, const X& x) {
  static_assert(!sharded_along<X, 2> && !sharded_along<X, 3>,
                "weft: operations on heads need whole heads, but an axis cuts their width (dim 2)");
  require_dims(operation, x, 3);
}
// The shape [tokens, heads] of x [tokens, heads, width].
inline Shape head_shape(const Shape& x) {
  return Shape{x[0], x[1]}.set_sharding(0, x.sharding(0)).set_sharding(1, x.sharding(1));
}
inline void require_head_numbers(const char* operation, NamedOperand x, NamedOperand v) {
  if (!(v.shape() == head_shape(x.shape())))
    throw_error<ShapeError>({call_text(operation, {x, v}), ": expected one number for each head of each token"});
}

// The sums of x's heads, times `factor`, and their gradient.
template <class X>
auto sums_of_heads(const char* operation, const X& x, double factor) {
  require_heads(operation, x);
  head_numbers_t<X> out(x.device(), head_shape(x.shape()));
  kernels::row_sums<typename X::value_type>(x.device(), x.rows(), x.columns(), x.data(), number_t<X>(factor), out.data());
  return out;
}
template <class X, class G>
gradient_t<X> sums_of_heads_gradient(const char* operation, const X& x, const G& g, double factor) {
  require_gradient_of<head_numbers_t<X>, G>();
  require_heads(operation, x);
  require_head_numbers(operation, x, g);
  gradient_t<X> out(x.device(), x.shape());
  kernels::spread_column(x.device(), x.rows(), x.columns(), g.data(), number_t<X>(factor), out.data());
  return out;
}

// x times one gain for all heads.
template <class X, class V>
struct GainRule {
  static constexpr bool fits = same_axis<X, V> && ((is_whole<X> && std::is_same_v<X, V>) ||
                                                   (kind_of<X> == Kind::shard && kind_of<V> == Kind::replicated) ||
                                                   (kind_of<X> == Kind::partial && is_whole<V>));
  static_assert(fits,
                "weft: times_heads: the gain of all heads is whole on every axis, Replicated where tokens or heads are cut: use "
                "parameter.for_operand(x) of a parameter without a rule on this axis");
  using type = X;
};

// A product with one number for each head, in the element type of the tensor.
template <class L, class R>
inline constexpr bool times_gives_partial = (kind_of<L> == Kind::partial && kind_of<R> == Kind::replicated) ||
                                            (kind_of<L> == Kind::replicated && kind_of<R> == Kind::partial);
template <class X, class Y>
struct HeadProduct : RefusedOperands<X, Y> {
  using type = X;
};
template <class T, class E, class... PX, class... PY>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>>) struct HeadProduct<Tensor<T, E, PX...>,
                                                                                                    Tensor<T, E, PY...>> {
  static constexpr bool fits = (((std::is_same_v<PX, PY> && kind_of<PX> != Kind::partial) || times_gives_partial<PX, PY>)&&...);
  static_assert(
      fits,
      "weft: times_each_head: these placements do not multiply (Partial by Partial is not the sum of products); bring one to the "
      "other's layout");
  using type = Tensor<T, E, std::conditional_t<times_gives_partial<PX, PY>, Partial<typename PX::axis>, PX>...>;
};

}  // namespace detail

namespace operations {

/// Each head of x [tokens, heads, width] times gain [width]. The gain is placed as x (Invariant, Replicated), Replicated if an
/// axis cuts tokens or heads, whole if x is Partial: parameter.for_operand(x). Gradients: times_heads(g, gain), and
/// sum_heads(times(x, g), Of::gradients).
template <AnyTensor X, AnyTensor V>
X times_heads(const X& x, const V& gain) {
  detail::require_same_scalar<X, V>();
  static_assert(std::is_same_v<typename detail::Pairwise<detail::GainRule, X, V>::template as<typename X::value_type>, X>);
  detail::require_heads("times_heads", x);
  detail::require_extents("times_heads", x, x.columns(), gain);
  X out(x.device(), x.shape());
  if constexpr (std::is_same_v<typename X::value_type, typename V::value_type>)
    kernels::multiply_row(x.device(), x.rows(), x.columns(), x.data(), gain.data(), out.data());
  return out;
}

/// The sum over tokens and heads of x [tokens, heads, width], [width] in accumulate_t; Partial on an axis that cuts either.
/// Throws LayoutError for values if several ranks hold the same heads.
template <AnyTensor X>
auto sum_heads(const X& x, Of of = Of::values) {
  detail::require_heads("sum_heads", x);
  detail::require_counted_once("sum_heads", x.shape(), of);
  detail::summed_t<X, accumulate_t<typename X::value_type>> out(x.device(), {x.columns()});
  kernels::column_sums<typename X::value_type>(x.device(), x.rows(), x.columns(), x.data(), x.columns(), out.data(), false);
  return out;
}

/// The sum of each head, x [tokens, heads, width] -> [tokens, heads] in accumulate_t, placed as x.
template <AnyTensor X>
auto sum_each_head(const X& x) {
  return detail::sums_of_heads("sum_each_head", x, 1);
}
/// The gradient of x, given the gradient `g` [tokens, heads] of sum_each_head(x).
template <AnyTensor X, AnyTensor G>
gradient_t<X> sum_each_head_gradient(const X& x, const G& g) {
  return detail::sums_of_heads_gradient("sum_each_head_gradient", x, g, 1);
}

/// The mean of each head, x [tokens, heads, width] -> [tokens, heads] in accumulate_t, placed as x.
template <AnyTensor X>
auto mean_each_head(const X& x) {
  return detail::sums_of_heads("mean_each_head", x, 1.0 / double(x.columns()));
}
/// The gradient of x, given the gradient `g` [tokens, heads] of mean_each_head(x).
template <AnyTensor X, AnyTensor G>
gradient_t<X> mean_each_head_gradient(const X& x, const G& g) {
  return detail::sums_of_heads_gradient("mean_each_head_gradient", x, g, 1.0 / double(x.columns()));
}

/// Each head of x [tokens, heads, width] times its number in v [tokens, heads], of x's element type, accumulate_t of it or
/// double; placed as for `times`: alike and not Partial, or one Partial and the other Replicated. Gradients: times_each_head(g,
/// v), and sum_each_head(times(x, g)).
template <AnyTensor X, AnyTensor V>
auto times_each_head(const X& x, const V& v) {
  detail::require_factor_scalar<X, V>();
  detail::require_heads("times_each_head", x);
  detail::require_head_numbers("times_each_head", x, v);
  typename detail::HeadProduct<X, with_scalar_t<V, typename X::value_type>>::type out(x.device(), x.shape());
  kernels::multiply_column(x.device(), x.rows(), x.columns(), x.data(), v.data(), out.data());
  return out;
}

}  // namespace operations

}  // namespace weft
