// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations element by element beyond those of products.hpp, and products with one number for all elements or one for each row.
// With them and reductions.hpp a layer's forward and backward need no loop over elements, so that types track every incomplete
// sum over an axis. "Rows" are dim 0, the tokens; operands have one element type.
//
//   auto y = divide_column(x, sqrt(mean_columns(square(x))));   // [tokens, columns] by [tokens]

#include <cstddef>
#include <type_traits>

#include <Kokkos_Core.hpp>

#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/rows.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

template <class...>
inline constexpr bool never = false;

// The type of the result of two tensors, by a rule for each axis: Rule<PX, PV>::type.
template <template <class, class> class Rule, class X, class V>
struct Pairwise {
  static_assert(never<X>, "weft: the operands name different axes, or lie on different devices: make both in one context");
  template <class>
  using as = X;
};
template <template <class, class> class Rule, class T, class U, class E, class... PX, class... PV>
requires(sizeof...(PX) == sizeof...(PV)) struct Pairwise<Rule, Tensor<T, E, PX...>, Tensor<U, E, PV...>> {
  template <class S>
  using as = Tensor<S, E, typename Rule<PX, PV>::type...>;
};

template <class X, class V>
inline constexpr bool same_axis = std::is_same_v<typename X::axis, typename V::axis>;
template <class X, class V>
inline constexpr bool linear_in_one = (kind_of<X> == Kind::partial && is_whole<V>) ||
                                      (kind_of<X> == Kind::replicated && kind_of<V> == Kind::partial);

// x times one number.
template <class X, class V>
struct ScalarRule {
  static constexpr bool fits =
      same_axis<X, V> && ((is_whole<X> && std::is_same_v<X, V>) ||
                          (kind_of<X> == Kind::shard && kind_of<V> == Kind::replicated) || linear_in_one<X, V>);
  static_assert(
      fits,
      "weft: times_scalar: the number lies as the tensor (Invariant, Replicated), is Replicated on an axis that shards the "
      "tensor, or one of the two is Partial: bring it there, to<Replicated<axis>>(s), on tensors (context, s), or its gradient "
      "loses a sum");
  using type = std::conditional_t<kind_of<V> == Kind::partial, V, X>;
};
// x times one number for each row.
template <class X, class V>
struct ColumnRule {
  static constexpr bool fits =
      same_axis<X, V> && ((is_whole<X> && std::is_same_v<X, V>) || (shard_dim<X> == 0 && shard_dim<V> == 0) ||
                          (shard_dim<X> >= 1 && kind_of<V> == Kind::replicated) || linear_in_one<X, V>);
  static_assert(fits,
                "weft: times_column: the numbers of the rows lie as the rows do (Invariant, Replicated, Shard<axis, 0>), are "
                "Replicated on an axis that cuts columns, or one of the two is Partial: bring them there, "
                "to<Replicated<axis>>(v), on tensors (context, v), or their gradient loses a sum");
  using type = std::conditional_t<kind_of<V> == Kind::partial, V, X>;
};
template <class X, class Y>
constexpr void require_same_scalar() {
  static_assert(std::is_same_v<typename X::value_type, typename Y::value_type>,
                "weft: the operands hold different element types; bring one to the other's: cast<T>(x)");
}
// A factor may have more precision than the tensor it multiplies.
template <class X, class V>
constexpr void require_factor_scalar() {
  using T = typename X::value_type;
  using U = typename V::value_type;
  static_assert(std::is_same_v<U, T> || std::is_same_v<U, accumulate_t<T>> || std::is_same_v<U, double>,
                "weft: the factor's elements are neither of the tensor's type nor of accumulate_t of it nor double; bring them "
                "there: cast<T>(x)");
}
inline void require_one(const char* operation, NamedOperand x) {
  if (x.shape().size() != 1) throw_error<ShapeError>({call_text(operation, {x}), ": expected one number, [1]"});
}
// Elements of a row, if rows are dim 0.
inline std::size_t row_size(const char* operation, NamedOperand of, NamedOperand numbers) {
  const Shape &x = of.shape(), &rows = numbers.shape();
  if (x.rank() == 0 || rows.rank() != 1 || rows[0] != x[0])
    throw_error<ShapeError>({call_text(operation, {of, numbers}), ": expected one number for each row"});
  return x[0] == 0 ? 0 : x.size() / x[0];
}

struct ExpOf {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    require_real<A>();
    return Kokkos::exp(x);
  }
};
struct LogOf {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    require_real<A>();
    return Kokkos::log(x);
  }
};
struct SqrtOf {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    require_real<A>();
    return Kokkos::sqrt(x);
  }
};
struct SquareOf {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    return x * x;
  }
};
struct TanhOf {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    require_real<A>();
    return Kokkos::tanh(x);
  }
};
struct SigmoidOf {
  template <class A>
  KOKKOS_FUNCTION A operator()(A x) const {
    require_real<A>();
    return A(1) / (A(1) + Kokkos::exp(-x));
  }
};

}  // namespace detail

/// x with elements of type U, any placement.
template <detail::Real U, AnyTensor X>
auto cast(const X& x) {
  with_scalar_t<X, U> out(x.device(), x.shape());
  kernels::cast<typename X::value_type, U>(x.device(), x.size(), x.data(), out.data());
  return out;
}

namespace operations {

/// x - y, as add. Gradients: those of add, the second one's times -1.
template <AnyTensor X, AnyTensor Y>
auto subtract(const X& x, const Y& y) {
  using B = detail::Broadcast<detail::Arithmetic::sum, X, Y>;
  constexpr bool fits = B::fits;
  static_assert(fits,
                "weft: subtract: the two terms are placed differently, or hold different element types; bring one to the other's "
                "layout, to_layout_of(x, y), on tensors to_layout_of<X>(context, y), or type, cast<T>(y)");
  if constexpr (!B::fits) {
    return x;  // one error is enough
  } else {
    if constexpr (std::is_same_v<X, Y>)
      if (x.shape() == y.shape()) {
        X out(x.device(), x.shape().with_cuts_of(y.shape()));
        kernels::subtract<typename X::value_type>(x.device(), x.size(), x.data(), y.data(), out.data());
        return out;
      }
    return detail::broadcast<detail::Arithmetic::sum>("subtract", x, y, kernels::Minus());
  }
}

/// x / y, element by element, both placed alike and not Partial, x Partial and y Replicated, or broadcast (broadcast.hpp). Throws
/// ShapeError for shapes that do not fit. Gradients: divide(g, y), and scale(divide(times(g, divide(x, y)), y), -1), summed over
/// the dims in which the operand was repeated.
template <AnyTensor X, AnyTensor Y>
auto divide(const X& x, const Y& y) {
  using B = detail::Broadcast<detail::Arithmetic::quotient, X, Y>;
  if constexpr (!B::fits) {
    constexpr bool operands = B::operands;
    if constexpr (!operands) detail::RefusedOperands<X, Y>();
    static_assert(
        !operands,
        "weft: divide: these placements do not divide (by a Partial divisor never: a quotient of sums is not the sum of "
        "quotients); reduce it, or bring one to the other's layout");
    return x;  // one error is enough
  } else {
    if constexpr (B::alike)
      if (x.shape() == y.shape()) {
        typename B::type out(x.device(), x.shape().with_cuts_of(y.shape()));
        kernels::divide<typename X::value_type>(x.device(), x.size(), x.data(), y.data(), out.data());
        return out;
      }
    return detail::broadcast<detail::Arithmetic::quotient>("divide", x, y, kernels::Divided());
  }
}

/// x times a number, any placement. The gradient is scale(g, factor).
template <AnyTensor X>
X scale(const X& x, double factor) {
  X out(x.device(), x.shape());
  kernels::scale<typename X::value_type>(x.device(), x.size(), accumulate_t<typename X::value_type>(factor), x.data(),
                                         out.data());
  out.mark_summed(x.summed());
  return out;
}

/// x times s [1], of x's element type, accumulate_t of it or double. On each axis s is placed as x (Invariant, Replicated), or is
/// Replicated and x sharded, or one of the two is Partial (x Partial: s Invariant or Replicated; x Replicated: s Partial) and so
/// is the product. Gradients: times_scalar(g, s), and dot(x, g), which is Partial if x is cut.
template <AnyTensor X, AnyTensor S>
auto times_scalar(const X& x, const S& s) {
  detail::require_factor_scalar<X, S>();
  detail::require_one("times_scalar", s);
  typename detail::Pairwise<detail::ScalarRule, X, S>::template as<typename X::value_type> out(x.device(), x.shape());
  kernels::multiply_scalar(x.device(), x.size(), x.data(), s.data(), out.data());
  return out;
}

/// Each row of x [rows, ...] times its number in v [rows], of x's element type, accumulate_t of it or double. On each axis v is
/// placed as x's rows (Invariant, Replicated, Shard 0), or is Replicated and x's columns are cut, or one of the two is Partial
/// and so is the product. Gradients: times_column(g, v), and sum_columns(times(x, g), Of::gradients).
template <AnyTensor X, AnyTensor V>
auto times_column(const X& x, const V& v) {
  detail::require_factor_scalar<X, V>();
  const std::size_t columns = detail::row_size("times_column", x, v);
  typename detail::Pairwise<detail::ColumnRule, X, V>::template as<typename X::value_type> out(x.device(), x.shape());
  kernels::multiply_column(x.device(), v.size(), columns, x.data(), v.data(), out.data());
  return out;
}

/// Each row of x [rows, ...] divided by its number in v [rows]; placed as for times_column, except that v must not be Partial.
/// Gradient of x: divide_column(g, v).
template <AnyTensor X, AnyTensor V>
auto divide_column(const X& x, const V& v) {
  detail::require_factor_scalar<X, V>();
  static_assert(!detail::any_partial<V>,
                "weft: divide_column: the divisors are Partial, and a quotient of sums is not the sum of quotients: reduce them, "
                "to<Invariant<axis>>(v), on tensors (context, v)");
  if constexpr (detail::any_partial<V>) {
    return x;  // one error is enough
  } else {
    const std::size_t columns = detail::row_size("divide_column", x, v);
    typename detail::Pairwise<detail::ColumnRule, X, V>::template as<typename X::value_type> out(x.device(), x.shape());
    kernels::divide_column(x.device(), v.size(), columns, x.data(), v.data(), out.data());
    return out;
  }
}

/// Functions of each element: any placement but Partial, whose ranks hold only terms. Gradients, with y the result: of exp
/// times(g, y), of log divide(g, x), of sqrt scale(divide(g, y), 0.5), of square scale(times(g, x), 2), of tanh subtract(g,
/// times(g, square(y))), of sigmoid times(subtract(g, times(g, y)), y).
template <AnyTensor X>
X exp(const X& x) {
  return map(x, detail::ExpOf{});
}
/// The natural logarithm of each element, in accumulate_t, in x's placements.
template <AnyTensor X>
X log(const X& x) {
  return map(x, detail::LogOf{});
}
/// The square root of each element, as log.
template <AnyTensor X>
X sqrt(const X& x) {
  return map(x, detail::SqrtOf{});
}
/// x x, element by element, as log.
template <AnyTensor X>
X square(const X& x) {
  return map(x, detail::SquareOf{});
}
/// The hyperbolic tangent of each element, as log.
template <AnyTensor X>
X tanh(const X& x) {
  return map(x, detail::TanhOf{});
}
/// 1 / (1 + exp(-x)), element by element, as log.
template <AnyTensor X>
X sigmoid(const X& x) {
  return map(x, detail::SigmoidOf{});
}

}  // namespace operations

}  // namespace weft
