// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arithmetic of placed tensors element by element and row by row: sums, products, functions. Each operation states the placements
// it takes and gives on each axis, and passes raw pointers to a kernel without placements. Shapes in comments are this
// rank's.
//
//   auto y = add_row(times_row(x, gain), bias);   // gain and bias [columns], each row of x [rows, columns]

#include <type_traits>
#include <utility>

#include <weft/engine/operand.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/functions.hpp>
#include <weft/operations/broadcast.hpp>
#include <weft/tensor/add.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

// The rules for dims 0 and 1 are those of a matrix: an axis that cuts dim 0 cuts rows, one that cuts dim 1 columns. Dim 0 of a
// vector and dim 1 of three dims are something else, which the type does not show.
void require_two_dims(const char* operation, NamedOperand x, bool second);
template <AnyTensor X>
void require_matrix(const char* operation, const X& x) {
  if constexpr (sharded_along<X, 0> || sharded_along<X, 1>) require_two_dims(operation, x, sharded_along<X, 1>);
}
/// Throws ShapeError unless the vector has `size` elements, the extent of a dim of x.
void require_extents(const char* operation, NamedOperand x, std::size_t size, NamedOperand vector);

// Whether a bias over the columns fits a matrix on one axis.
template <class X, class V>
constexpr bool bias_fits() {
  return (kind_of<X> == Kind::invariant && kind_of<V> == Kind::invariant) ||
         (kind_of<X> == Kind::replicated && kind_of<V> == Kind::replicated) ||
         (shard_dim<X> == 0 && kind_of<V> == Kind::replicated) || (shard_dim<X> == 1 && shard_dim<V> == 0) ||
         (kind_of<X> == Kind::partial && kind_of<V> == Kind::partial);
}
template <class X, class V>
constexpr bool factor_fits() {
  return (is_whole<X> && is_whole<V>) || (shard_dim<X> == 0 && is_whole<V>) || (kind_of<X> == Kind::partial && is_whole<V>) ||
         (shard_dim<X> == 1 && shard_dim<V> == 0);
}
template <class X, class V>
struct RowRules {
  static constexpr bool operands = false, bias = false, factor = false, whole_beside_columns = false;
};
template <class T, class E, class... PX, class... PV>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PV::axis...>>) struct RowRules<Tensor<T, E, PX...>,
                                                                                                 Tensor<T, E, PV...>> {
  static constexpr bool operands = true, bias = (bias_fits<PX, PV>() && ...), factor = (factor_fits<PX, PV>() && ...);
  static constexpr bool whole_beside_columns = ((shard_dim<PX> == 1 && is_whole<PV>) || ...);
};
template <class X, class V, bool factor>
constexpr void refuse_row() {
  using R = RowRules<X, V>;
  constexpr bool refused = any_refused_cut<X>;  // which is an error already
  if constexpr (!R::operands) RefusedOperands<X, V>();
  static_assert(refused || !R::whole_beside_columns,
                "weft: a bias or gain that every rank has whole, beside columns that an axis cuts: a rank needs its part of it; "
                "declare it as Parameter<Shard<tp, 0>> (the axis that cuts the columns) instead of Parameter<>");
  static_assert(refused || !R::operands || R::whole_beside_columns || factor,
                "weft: the bias does not lie as the rows that it is added to; use parameter.for_operand(y) (a Partial tensor "
                "takes a bias once: to<Partial<axis>>(bias), on tensors (context, bias))");
  static_assert(refused || !R::operands || R::whole_beside_columns || !factor,
                "weft: times_row: the vector does not lie as the tensor's columns do; use parameter.for_operand(x)");
}

// Columns are the last dim, whose number the type does not show. An odd dim that an axis cuts is taken as the columns, an even
// one as a dim of rows: sum_rows checks the number of dims.
template <class P>
using summed_rows_t =
    std::conditional_t<(shard_dim<P> < 0), P,
                       std::conditional_t<shard_dim<P> % 2 == 1, Shard<typename P::axis, 0>, Partial<typename P::axis>>>;
void require_last_if_odd(NamedOperand x, std::size_t dim);
template <AnyTensor X, std::size_t... Dim>
void require_summed_rows(const X& x, std::index_sequence<Dim...>) {
  ((sharded_along<X, int(Dim)> && Dim >= 2 ? require_last_if_odd(x, Dim) : void()), ...);
}
template <class X>
struct SummedRows;
template <class T, class E, class... P>
struct SummedRows<Tensor<T, E, P...>> {
  using type = Tensor<accumulate_t<T>, E, summed_rows_t<P>...>;
};

// out[i] = f(i), for user functions.
template <class Exec, class F>
void for_each_element(Device<Exec>& device, Traffic traffic, std::size_t size, F f) {
  for_each_index(device, traffic, size, f);
}

}  // namespace detail

namespace operations {

/// x + y, both placed alike or broadcast (broadcast.hpp). Reuses y's memory if nothing else holds it. Throws ShapeError for
/// shapes that do not fit. The gradients are g, summed over the dims in which the operand was repeated.
template <AnyTensor X, AnyTensor Y>
auto add(const X& x, Y y) {
  using B = detail::Broadcast<detail::Arithmetic::sum, X, Y>;
  if constexpr (!B::fits) {
    constexpr bool operands = B::operands;
    if constexpr (!operands) detail::RefusedOperands<X, Y>();
    static_assert(!operands,
                  "weft: add: the two terms are placed differently; bring one to the other's layout: to_layout_of(x, y), on "
                  "tensors to_layout_of<X>(context, y)");
    return x;  // one error is enough
  } else {
    if constexpr (std::is_same_v<X, Y>)
      if (x.shape() == y.shape()) return detail::sum_of(x, std::move(y));
    return detail::broadcast<detail::Arithmetic::sum>("add", x, y, kernels::Plus());
  }
}

/// The product element by element, of operands placed alike, Partial by Replicated or broadcast (broadcast.hpp). Throws
/// ShapeError for shapes that do not fit.
template <AnyTensor X, AnyTensor Y>
auto times(const X& x, const Y& y) {
  using B = detail::Broadcast<detail::Arithmetic::product, X, Y>;
  if constexpr (!B::fits) {
    constexpr bool operands = B::operands;
    if constexpr (!operands) detail::RefusedOperands<X, Y>();
    static_assert(!operands,
                  "weft: times: these placements do not multiply (Partial by Partial is not the sum of products); bring one to "
                  "the other's layout");
    return x;  // one error is enough
  } else {
    if constexpr (B::alike)
      if (x.shape() == y.shape()) {
        typename B::type out(x.device(), x.shape().with_cuts_of(y.shape()));
        kernels::multiply(x.device(), x.size(), x.data(), y.data(), out.data());
        return out;
      }
    return detail::broadcast<detail::Arithmetic::product>("times", x, y, kernels::Times());
  }
}

/// Each row of x [rows, columns] times the vector v [columns], element by element.
template <AnyTensor X, AnyTensor V>
auto times_row(const X& x, const V& v) {
  detail::require_matrix("times_row", x);
  detail::require_extents("times_row", x, x.columns(), v);
  if constexpr (!detail::RowRules<X, V>::factor) {
    detail::refuse_row<X, V, true>();
    return detail::AlreadyRefused();  // so that its backward gives no second error
  } else {
    X out(x.device(), x.shape());
    kernels::multiply_row(x.device(), x.rows(), x.columns(), x.data(), v.data(), out.data());
    return out;
  }
}

/// The vector v [columns] added to each row of x [rows, columns].
template <AnyTensor X, AnyTensor V>
auto add_row(const X& x, const V& v) {
  detail::require_matrix("add_row", x);
  detail::require_extents("add_row", x, x.columns(), v);
  if constexpr (!detail::RowRules<X, V>::bias) {
    detail::refuse_row<X, V, false>();
    return detail::AlreadyRefused();  // so that its backward gives no second error
  } else {
    X out(x.device(), x.shape());
    kernels::add_row(x.device(), x.rows(), x.columns(), x.data(), v.data(), out.data());
    return out;
  }
}

// An operand that was refused already: one error is enough.
template <AnyTensor V>
detail::AlreadyRefused times_row(detail::AlreadyRefused refused, const V&) {
  return refused;
}
template <AnyTensor V>
detail::AlreadyRefused add_row(detail::AlreadyRefused refused, const V&) {
  return refused;
}

/// The sum over all dims but the last, [columns], in accumulate_t; Partial on an axis that cuts a dim of rows: 0, 2 of four or
/// more dims, 4 of six.
template <AnyTensor X>
auto sum_rows(const X& x) {
  detail::require_matrix("sum_rows", x);
  detail::require_summed_rows(x, std::make_index_sequence<Shape::max_rank>());
  typename detail::SummedRows<X>::type out(x.device(),
                                           Shape{x.columns()}.set_sharding(0, x.shape().sharding(x.shape().rank() - 1)));
  kernels::column_sums<typename X::value_type>(x.device(), x.rows(), x.columns(), x.data(), x.columns(), out.data(), false);
  return out;
}

/// f of every element. x must not be Partial, since f need not be linear. f takes and returns accumulate_t.
template <AnyTensor X, class F>
X map(const X& x, F f) {
  require_not_partial<X>();
  X out(x.device(), x.shape());
  using T = typename X::value_type;
  const T* a = x.data();
  T* c = out.data();
  detail::for_each_element(
      x.device(), {"elementwise", 2 * x.size() * sizeof(T)}, x.size(),
      KOKKOS_LAMBDA(const std::size_t i) { c[i] = T(f(accumulate_t<T>(a[i]))); });
  return out;
}

/// The gradient of map: g times derivative(x), element by element.
template <AnyTensor X, AnyTensor G, class F>
G chain(const X& x, const G& g, F derivative) {
  require_gradient_of<X, G>();
  detail::require_same_shape("chain", x, g);
  G out(g.device(), g.shape());
  using T = typename X::value_type;
  using A = accumulate_t<T>;
  const T *a = x.data(), *b = g.data();
  T* c = out.data();
  detail::for_each_element(
      g.device(), {"elementwise", 3 * g.size() * sizeof(T)}, g.size(),
      KOKKOS_LAMBDA(const std::size_t i) { c[i] = T(A(b[i]) * A(derivative(A(a[i])))); });
  return out;
}

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/rows_impl.hpp>
#endif
