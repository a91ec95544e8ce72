// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products and sums of placed tensors. Each operation states the placements it takes and gives on each axis, and passes raw
// pointers to a kernel that knows no placement. Shapes in comments are this rank's.
//
//   auto y = matmul(x, w);   // [tokens, in] times [out, in]ᵀ -> [tokens, out]

#include <type_traits>
#include <utility>

#include <weft/kernels/elementwise.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/matmul_fused.hpp>
#include <weft/layer/parameter.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

// The error for two operands that no operation takes together. Instantiated only if their types do not fit.
template <class X, class Y>
struct RefusedOperands;
template <class T, class U, class E, class F, class... PX, class... PY>
struct RefusedOperands<Tensor<T, E, PX...>, Tensor<U, F, PY...>> {
  static constexpr bool fits = false, types = std::is_same_v<T, U>, memory = std::is_same_v<E, F>,
                        as_many = sizeof...(PX) == sizeof...(PY);
  static_assert(
      types,
      "weft: the operands hold different element types, such as double beside bfloat16: layers compute in Context::scalar, so "
      "make the tensor in it, Tensor<typename Context::scalar, ...>, or convert it on purpose with kernels::cast");
  static_assert(memory || !types,
                "weft: the operands lie in the memory of different devices: copy one to the other's device first");
  static_assert(as_many || !types || !memory,
                "weft: the operands name different axes: each tensor says of every axis in force how it lies there; take a "
                "parameter as parameter.for_operand(x), and a tensor of one's own with x's axes");
  static_assert(
      std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>> || !as_many || !types || !memory,
      "weft: the operands name their axes in different order, or different ones: every tensor names them in the order of the "
      "wrappers, outermost first; take a parameter as parameter.for_operand(x), and a tensor of one's own with x's axes");
};

enum class ContractFault { none, partial_by_partial, not_entered, no_rule };
struct ContractRule {
  Kind kind;
  int dim = -1;
  ContractFault fault = ContractFault::none;
};
// The rule on one axis for y[i,j] = sum_k l r: l's dim li and r's dim rj remain, the others are summed.
constexpr ContractRule contract_rule(Kind l, int l_dim, Kind r, int r_dim, int li, int rj) {
  const bool whole_l = l == Kind::replicated, whole_r = r == Kind::replicated;
  if (l == r && (whole_l || l == Kind::invariant)) return {l};
  if (l_dim == li && whole_r) return {Kind::shard, 0};
  if (whole_l && r_dim == rj) return {Kind::shard, 1};
  if (l_dim == 1 - li && r_dim == 1 - rj) return {Kind::partial};
  if (l == Kind::partial && (whole_r || r == Kind::invariant)) return {Kind::partial};
  if (r == Kind::partial && whole_l) return {Kind::partial};
  if (l == r && l == Kind::partial) return {Kind::partial, -1, ContractFault::partial_by_partial};
  return {Kind::partial, -1, l == Kind::invariant || r == Kind::invariant ? ContractFault::not_entered : ContractFault::no_rule};
}
template <class A, Kind kind, int dim>
struct Placed {
  using type = Shard<A, dim>;
};
template <class A, int dim>
struct Placed<A, Kind::invariant, dim> {
  using type = Invariant<A>;
};
template <class A, int dim>
struct Placed<A, Kind::replicated, dim> {
  using type = Replicated<A>;
};
template <class A, int dim>
struct Placed<A, Kind::partial, dim> {
  using type = Partial<A>;
};

// The rules on all axes, without an error if they refuse the product.
template <class L, class R, int LI, int RJ>
struct ContractRules {
  static constexpr bool fits = false;
};
template <class T, class E, class... PL, class... PR, int LI, int RJ>
requires(std::is_same_v<Axes<typename PL::axis...>,
                        Axes<typename PR::axis...>>) struct ContractRules<Tensor<T, E, PL...>, Tensor<T, E, PR...>, LI, RJ> {
  template <class L, class R>
  static constexpr ContractRule rule = contract_rule(kind_of<L>, shard_dim<L>, kind_of<R>, shard_dim<R>, LI, RJ);
  static constexpr ContractFault fault = [] {
    ContractFault first = ContractFault::none;
    (void(first = first == ContractFault::none ? rule<PL, PR>.fault : first), ...);
    return first;
  }();
  static constexpr bool fits = fault == ContractFault::none;
  using type = Tensor<T, E, typename Placed<typename PL::axis, rule<PL, PR>.kind, rule<PL, PR>.dim>::type...>;
};

// A refused product: a type replaces the product's and nothing is multiplied, so that there is one error.
template <class L, class R, int LI, int RJ>
struct Contract : RefusedOperands<L, R> {
  using type = L;
};
template <class T, class E, class... PL, class... PR, int LI, int RJ>
requires(std::is_same_v<Axes<typename PL::axis...>, Axes<typename PR::axis...>>) struct Contract<Tensor<T, E, PL...>,
                                                                                                 Tensor<T, E, PR...>, LI, RJ> {
  using Rules = ContractRules<Tensor<T, E, PL...>, Tensor<T, E, PR...>, LI, RJ>;
  using type = typename Rules::type;
  static_assert(Rules::fault != ContractFault::partial_by_partial,
                "weft: matmul of Partial by Partial: a product of sums is not the sum of products; reduce one operand first");
  static_assert(Rules::fault != ContractFault::not_entered,
                "weft: matmul of an Invariant operand with a sharded or Replicated one: enter the parallel region first, "
                "to<Replicated<axis>>(context, x), or its gradient loses a sum");
  static_assert(Rules::fault != ContractFault::no_rule,
                "weft: matmul has no rule for these placements: on each axis one operand may be cut where the other is "
                "Replicated, along the dim that stays in the product, or both along the dim that is summed, which gives a "
                "Partial product; bring one operand to such a layout with to<...>(context, x)");
};
template <class L, class R, int LI, int RJ>
inline constexpr bool contract_fits = ContractRules<std::remove_cvref_t<L>, std::remove_cvref_t<R>, LI, RJ>::fits;

struct MatmulExtents {
  std::size_t m, n, k;
  Shape product = {};  // [m, n], each dim cut as that of the operand it comes from
};
// Not templates of the operands, so that shapes and their errors are compiled once.
MatmulExtents matmul_extents(const Shape& l, const Shape& r, bool l_second, bool r_second);
// The rules for dims 0 and 1 are those of a matrix: an axis that cuts dim 0 cuts rows, one that cuts dim 1 columns. Dim 0 of a
// vector and dim 1 of three dims are something else, which the type does not show.
void require_two_dims(const char* operation, const Shape& shape, bool second);
template <AnyTensor X>
void require_matrix(const char* operation, const X& x) {
  if constexpr (sharded_along<X, 0> || sharded_along<X, 1>) require_two_dims(operation, x.shape(), sharded_along<X, 1>);
}
template <AnyTensor L, AnyTensor R>
MatmulExtents matmul_extents(const L& l, const R& r, bool l_second, bool r_second) {
  require_matrix("matmul", l);
  require_matrix("matmul", r);
  return matmul_extents(l.shape(), r.shape(), l_second, r_second);
}
void require_extents(const char* operation, const Shape& shape, std::size_t columns, const Shape& vector, std::size_t size);
void require_gradient_size(const Shape& gradient, std::size_t size, const ParameterState& state);

template <int LI, int RJ, class L, class R, class C>
void run_matmul(const L& l, const R& r, C* out, bool accumulate, const typename L::value_type* bias) {
  const auto e = matmul_extents(l, r, LI, RJ);
  kernels::matmul<typename L::value_type, C>(l.device(), LI ? kernels::Transpose::yes : kernels::Transpose::no,
                                             RJ ? kernels::Transpose::no : kernels::Transpose::yes, e.m, e.n, e.k, l.data(),
                                             l.columns(), r.data(), r.columns(), out, e.n, accumulate, bias);
}

}  // namespace detail

/// The type of the product in which l's dim LI and r's dim RJ remain.
template <class L, class R, int LI, int RJ>
using contract_t = typename detail::Contract<std::remove_cvref_t<L>, std::remove_cvref_t<R>, LI, RJ>::type;

/// y[i, j] = Σ l r: l's dim LI and r's dim RJ remain, the other two are summed.
template <int LI, int RJ, AnyTensor L, AnyTensor R>
auto contract(const L& l, const R& r) {
  const auto e = detail::matmul_extents(l, r, LI, RJ);
  contract_t<L, R, LI, RJ> y(l.device(), e.product);
  if constexpr (detail::contract_fits<L, R, LI, RJ>) detail::run_matmul<LI, RJ>(l, r, y.data(), false, nullptr);
  return y;
}

namespace operations {

/// x [tokens, in] times wᵀ, w [out, in] -> [tokens, out].
template <AnyTensor X, AnyTensor W>
auto matmul(const X& x, const W& w) {
  return contract<0, 0>(x, w);
}
/// The gradient of x: g [tokens, out] times w [out, in] -> [tokens, in].
template <AnyTensor G, AnyTensor W>
auto matmul_input_gradient(const G& g, const W& w) {
  return contract<0, 1>(g, w);
}
/// The gradient of w: gᵀ [out, tokens] times x [tokens, in] -> [out, in].
template <AnyTensor G, AnyTensor X>
auto matmul_weight_gradient(const G& g, const X& x) {
  return contract<1, 1>(g, x);
}

}  // namespace operations

/// Adds the product lᵀ r to a parameter's gradient without a temporary; computes nothing if the parameter is frozen.
template <class P, AnyTensor L, AnyTensor R>
void accumulate_product(P& parameter, const L& l, const R& r) {
  using G = contract_t<L, R, 1, 1>;
  const auto e = detail::matmul_extents(l, r, true, true);
  detail::require_gradient_size(e.product, e.m * e.n, parameter.state());
  if (!parameter.trainable()) return;
  const auto open = parameter.template open_gradient<G>(l.device());
  if constexpr (detail::contract_fits<L, R, 1, 1>) detail::run_matmul<1, 1>(l, r, open.data, !open.first, nullptr);
}

namespace detail {

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
  if constexpr (!R::operands) RefusedOperands<X, V>();
  static_assert(!R::whole_beside_columns,
                "weft: a bias or gain that every rank has whole, beside columns that an axis cuts: a rank needs its part of it; "
                "declare it as Parameter<Shard<tp, 0>> (the axis that cuts the columns) instead of Parameter<>");
  static_assert(!R::operands || R::whole_beside_columns || factor,
                "weft: the bias does not lie as the rows that it is added to; use parameter.for_operand(y) (a Partial tensor "
                "takes a bias once: to<Partial<axis>>(context, bias))");
  static_assert(!R::operands || R::whole_beside_columns || !factor,
                "weft: times_row: the vector does not lie as the tensor's columns do; use parameter.for_operand(x)");
}

// A product of two tensors element by element.
template <class L, class R>
inline constexpr bool times_gives_partial = (kind_of<L> == Kind::partial && kind_of<R> == Kind::replicated) ||
                                            (kind_of<L> == Kind::replicated && kind_of<R> == Kind::partial);
template <class X, class Y>
struct Times : RefusedOperands<X, Y> {
  using type = X;
};
template <class T, class E, class... PX, class... PY>
requires(std::is_same_v<Axes<typename PX::axis...>, Axes<typename PY::axis...>>) struct Times<Tensor<T, E, PX...>,
                                                                                              Tensor<T, E, PY...>> {
  static constexpr bool fits = (((std::is_same_v<PX, PY> && kind_of<PX> != Kind::partial) || times_gives_partial<PX, PY>)&&...);
  static_assert(fits,
                "weft: times: these placements do not multiply (Partial by Partial is not the sum of products); bring one to the "
                "other's layout");
  using type = Tensor<T, E, std::conditional_t<times_gives_partial<PX, PY>, Partial<typename PX::axis>, PX>...>;
};

template <class P>
using summed_rows_t = std::conditional_t<shard_dim<P> == 0, Partial<typename P::axis>,
                                         std::conditional_t<shard_dim<P> == 1, Shard<typename P::axis, 0>, P>>;
template <class X>
struct SummedRows;
template <class T, class E, class... P>
struct SummedRows<Tensor<T, E, P...>> {
  using type = Tensor<accumulate_t<T>, E, summed_rows_t<P>...>;
};

inline void require_same_shape(const char* operation, const Shape& a, const Shape& b) {
  if (!(a == b)) throw_error<ShapeError>({operation, ": ", a.text(), " and ", b.text(), " differ"});
}

// out[i] = f(i), for user functions.
template <class Exec, class F>
void for_each_element(Device<Exec>& device, std::size_t size, F f) {
  for_each_index(device, size, f);
}

}  // namespace detail

/// x [tokens, in] times w, plus bias [out]; RJ 0: w is [out, in], RJ 1: w is [in, out].
template <int RJ, AnyTensor X, AnyTensor W, AnyTensor B>
auto linear(const X& x, const W& w, const B& bias) {
  using Y = contract_t<X, W, 0, RJ>;
  const auto e = detail::matmul_extents(x, w, false, RJ);
  detail::require_extents("linear", w.shape(), e.n, bias.shape(), bias.size());
  Y y(x.device(), e.product);
  if constexpr (!detail::contract_fits<X, W, 0, RJ>) return y;
  else if constexpr (!detail::RowRules<Y, B>::bias) detail::refuse_row<Y, B, false>();
  else detail::run_matmul<0, RJ>(x, w, y.data(), false, bias.data());
  return y;
}

/// linear(x, w, bias) and its GELU, as a pair.
template <int RJ, AnyTensor X, AnyTensor W, AnyTensor B>
auto linear_gelu(const X& x, const W& w, const B& bias) {
  using Y = contract_t<X, W, 0, RJ>;
  constexpr bool fits = detail::contract_fits<X, W, 0, RJ>;
  if constexpr (fits && detail::RowRules<Y, B>::bias) require_not_partial<Y>();
  const auto e = detail::matmul_extents(x, w, false, RJ);
  detail::require_extents("linear_gelu", w.shape(), e.n, bias.shape(), bias.size());
  Y before(x.device(), e.product), after(x.device(), e.product);
  if constexpr (fits && !detail::RowRules<Y, B>::bias) detail::refuse_row<Y, B, false>();
  else if constexpr (fits)
    kernels::matmul_gelu(x.device(), RJ ? kernels::Transpose::no : kernels::Transpose::yes, e.m, e.n, e.k, x.data(), w.data(),
                         bias.data(), before.data(), after.data());
  return std::pair{std::move(before), std::move(after)};
}

/// contract<0, RJ>(g, w) times gelu'(before), element by element: the gradient of the input of a GELU whose output a product
/// takes.
template <int RJ, AnyTensor G, AnyTensor W, AnyTensor X>
auto contract_gelu(const G& g, const W& w, const X& before) {
  using D = contract_t<G, W, 0, RJ>;
  require_gradient_of<X, D>();  // of a Partial product only the sum has a GELU
  const auto e = detail::matmul_extents(g, w, false, RJ);
  D out(g.device(), e.product);
  detail::require_same_shape("contract_gelu", out.shape(), before.shape());
  if constexpr (detail::contract_fits<G, W, 0, RJ>)
    kernels::matmul_gelu_backward(g.device(), RJ ? kernels::Transpose::no : kernels::Transpose::yes, e.m, e.n, e.k, g.data(),
                                  w.data(), before.data(), out.data());
  return out;
}

namespace operations {

/// x + y, both placed alike. Reuses y's memory if nothing else holds it.
template <AnyTensor X, AnyTensor Y>
X add(const X& x, Y y) {
  constexpr bool alike = std::is_same_v<X, Y>;
  if constexpr (!alike) {
    constexpr bool operands = detail::RowRules<X, Y>::operands;
    if constexpr (!operands) detail::RefusedOperands<X, Y>();
    static_assert(
        alike || !operands,
        "weft: add: the two terms are placed differently; bring one to the other's layout: to_layout_of<X>(context, y)");
    return x;  // one error is enough
  } else {
    detail::require_same_shape("add", x.shape(), y.shape());
    const Shape shape = x.shape().with_cuts_of(y.shape());
    X out = y.unique() && y.shape().cuts() == shape.cuts() ? y : X(x.device(), shape);
    kernels::add<typename X::value_type>(x.device(), x.size(), x.data(), y.data(), out.data());
    return out;
  }
}

/// The product element by element.
template <AnyTensor X, AnyTensor Y>
auto times(const X& x, const Y& y) {
  detail::require_same_shape("times", x.shape(), y.shape());
  typename detail::Times<X, Y>::type out(x.device(), x.shape().with_cuts_of(y.shape()));
  if constexpr (detail::Times<X, Y>::fits) kernels::multiply(x.device(), x.size(), x.data(), y.data(), out.data());
  return out;
}

/// Each row of x [rows, columns] times the vector v [columns], element by element.
template <AnyTensor X, AnyTensor V>
auto times_row(const X& x, const V& v) {
  detail::require_matrix("times_row", x);
  detail::require_extents("times_row", x.shape(), x.columns(), v.shape(), v.size());
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
  detail::require_extents("add_row", x.shape(), x.columns(), v.shape(), v.size());
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

/// The sum over rows, [columns], in accumulate_t; Partial on an axis that cuts rows.
template <AnyTensor X>
auto sum_rows(const X& x) {
  detail::require_matrix("sum_rows", x);
  typename detail::SummedRows<X>::type out(x.device(),
                                           Shape{x.columns()}.set_sharding(0, x.shape().sharding(x.shape().rank() - 1)));
  kernels::column_sums<typename X::value_type>(x.device(), x.rows(), x.columns(), x.data(), x.columns(), out.data(), false);
  return out;
}

}  // namespace operations

/// accumulate_product(parameter, l, r), and sum_rows of the factor `Summed`, which is returned.
template <kernels::Factor Summed, class P, AnyTensor L, AnyTensor R>
auto accumulate_product_and_sums(P& parameter, const L& l, const R& r) {
  constexpr bool right = Summed == kernels::Factor::right;
  using G = contract_t<L, R, 1, 1>;
  const auto e = detail::matmul_extents(l, r, true, true);
  detail::require_gradient_size(e.product, e.m * e.n, parameter.state());
  typename detail::SummedRows<std::conditional_t<right, R, L>>::type sums(
      l.device(), Shape{right ? e.n : e.m}.set_sharding(0, e.product.sharding(right ? 1 : 0)));
  const auto open = parameter.template open_gradient<G>(l.device());
  if constexpr (detail::contract_fits<L, R, 1, 1>)
    kernels::matmul_sums<Summed>(l.device(), e.m, e.n, e.k, l.data(), r.data(), open.data, !open.first, sums.data());
  return sums;
}

namespace operations {

/// f of every element. x must not be Partial, since f need not be linear. f takes and returns accumulate_t.
template <AnyTensor X, class F>
X map(const X& x, F f) {
  require_not_partial<X>();
  X out(x.device(), x.shape());
  using T = typename X::value_type;
  const T* a = x.data();
  T* c = out.data();
  detail::for_each_element(
      x.device(), x.size(), KOKKOS_LAMBDA(const std::size_t i) { c[i] = T(f(accumulate_t<T>(a[i]))); });
  return out;
}

/// The gradient of map: g times derivative(x), element by element.
template <AnyTensor X, AnyTensor G, class F>
G chain(const X& x, const G& g, F derivative) {
  require_gradient_of<X, G>();
  detail::require_same_shape("chain", x.shape(), g.shape());
  G out(g.device(), g.shape());
  using T = typename X::value_type;
  using A = accumulate_t<T>;
  const T *a = x.data(), *b = g.data();
  T* c = out.data();
  detail::for_each_element(
      g.device(), g.size(), KOKKOS_LAMBDA(const std::size_t i) { c[i] = T(A(b[i]) * A(derivative(A(a[i])))); });
  return out;
}

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/layer/operations/products_impl.hpp>
#endif
