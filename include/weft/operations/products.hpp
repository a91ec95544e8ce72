// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products of placed tensors. Each operation states the placements it takes and gives on each axis, and passes raw
// pointers to a kernel without placements. Shapes in comments are this rank's.
//
//   auto y = matmul(x, w);   // [tokens, in] times [out, in]ᵀ -> [tokens, out]

#include <type_traits>
#include <utility>

#include <weft/autograd/parameter.hpp>
#include <weft/autograd/row_terms.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/kernels/matmul_fused.hpp>
#include <weft/operations/rows.hpp>
#include <weft/tensor/gather_in_pieces.hpp>
#include <weft/tensor/placement_rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

enum class ContractFault { none, partial_by_partial, not_entered, no_rule };
struct ContractRule {
  Kind kind;
  int dim = -1;
  ContractFault fault = ContractFault::none;
};
// The rule on one axis of a product that is linear in both operands.
constexpr ContractRule contract_rule(const OperationRule& rule, AxisLayout l, AxisLayout r) {
  const auto result = result_on(rule, {l, r});
  const bool invariant = l.kind == Kind::invariant || r.kind == Kind::invariant,
             entered = !invariant || (r.kind == Kind::invariant && (l.kind == r.kind || l.kind == Kind::partial));
  if (result && entered) return {result->kind, result->dim};
  if (l.kind == r.kind && l.kind == Kind::partial) return {Kind::partial, -1, ContractFault::partial_by_partial};
  return {Kind::partial, -1, invariant ? ContractFault::not_entered : ContractFault::no_rule};
}
// The same for y[i,j] = sum_k l r: l's dim li and r's dim rj remain, the others are summed.
constexpr ContractRule contract_rule(Kind l, int l_dim, Kind r, int r_dim, int li, int rj) {
  // Not const: g++ 12 refuses to construct it in a constant expression then.
  OperationRule rule{
      .operands = {li == 0 ? "mk" : "km", rj == 0 ? "nk" : "kn"}, .count = 2, .result = "mn", .linear = {0b01, 0b10}};
  return contract_rule(rule, AxisLayout{l, l_dim}, AxisLayout{r, r_dim});
}

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
  static_assert((require_real<T>(), true));
  static_assert(Rules::fault != ContractFault::partial_by_partial,
                "weft: matmul of Partial by Partial: a product of sums is not the sum of products; reduce one operand first");
  static_assert(Rules::fault != ContractFault::not_entered,
                "weft: matmul of an Invariant operand with a sharded or Replicated one: enter the parallel region first, "
                "to<Replicated<axis>>(x), on tensors (context, x), or its gradient loses a sum");
  static_assert(Rules::fault != ContractFault::no_rule,
                "weft: matmul has no rule for these placements: on each axis one operand may be cut where the other is "
                "Replicated, along the dim that stays in the product, or both along the dim that is summed, which gives a "
                "Partial product; bring one operand to such a layout with to<...>(x), on tensors (context, x)");
};
template <class L, class R, int LI, int RJ>
inline constexpr bool contract_fits = ContractRules<std::remove_cvref_t<L>, std::remove_cvref_t<R>, LI, RJ>::fits;

struct MatmulExtents {
  std::size_t m, n, k;
  Shape product = {};  // [m, n], each dim cut as that of the operand it comes from
};
// Not templates of the operands, so that shapes and their errors are compiled once.
MatmulExtents matmul_extents(NamedOperand l, NamedOperand r, bool l_second, bool r_second);
template <AnyTensor L, AnyTensor R>
MatmulExtents matmul_extents(const L& l, const R& r, bool l_second, bool r_second) {
  require_matrix("matmul", l);
  require_matrix("matmul", r);
  return matmul_extents(NamedOperand(l), NamedOperand(r), l_second, r_second);
}
void require_gradient_size(const Shape& gradient, std::size_t size, const ParameterState& state);

// Whether a factor is Partial over tp and holds the whole sum (tensor/fixed_terms.hpp), so that the product does, too.
template <AnyTensor L, AnyTensor R>
bool summed_factor(const L& l, const R& r) {
  constexpr bool left = kind_of<placement_t<L, tp>> == Kind::partial, right = kind_of<placement_t<R, tp>> == Kind::partial;
  return (left && l.summed()) || (right && r.summed());
}

template <int LI, int RJ, class L, class R, class C>
void run_matmul(const L& l, const R& r, C* out, bool accumulate, const typename L::value_type* bias) {
  using T = typename L::value_type;
  const auto e = matmul_extents(l, r, LI, RJ);
  const auto multiply = [&](const T* rows, std::size_t first, std::size_t m) {
    kernels::matmul<T, C>(l.device(), LI ? kernels::Transpose::yes : kernels::Transpose::no,
                          RJ ? kernels::Transpose::no : kernels::Transpose::yes, m, e.n, e.k, rows, l.columns(), r.data(),
                          r.columns(), out + first * e.n, e.n, accumulate, bias);
  };
  if constexpr (LI == 0) for_each_block_of_rows(l, multiply);
  else multiply(l.data(), 0, e.m);
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
  y.mark_summed(detail::summed_factor(l, r));
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
// The same for l and r whose rows are those of x in another order: run(first, count) is the pair of the first and the number of
// their rows that belong to rows [first, first + count) of x. Under NumericsOptions::reproducible_degree a sum over rows that cp
// or tp cuts has fixed terms, and a summed factor gives the whole gradient.
template <class Context, class P, AnyTensor X, AnyTensor L, AnyTensor R, class Run>
void accumulate_product_of_rows(const Context& context, P& parameter, const X& x, const L& l, const R& r, const Run& run) {
  using T = typename L::value_type;
  using G = contract_t<L, R, 1, 1>;
  const auto e = matmul_extents(l, r, true, true);
  require_gradient_size(e.product, e.m * e.n, parameter.state());
  if (!parameter.trainable()) return;
  const auto sum = [&]<class C>(std::size_t first, std::size_t count, C* out, bool add) {
    const std::pair<std::size_t, std::size_t> rows = run(first, count);
    if constexpr (contract_fits<L, R, 1, 1>)
      kernels::matmul<T, C>(l.device(), kernels::Transpose::yes, kernels::Transpose::no, e.m, e.n, rows.second,
                            l.data() + rows.first * l.columns(), l.columns(), r.data() + rows.first * r.columns(), r.columns(),
                            out, e.n, add);
  };
  if constexpr (kind_of<placement_t<G, tp>> == Kind::partial)
    if (summed_factor(l, r)) return accumulate_rows<replace_t<G, Invariant<tp>>>(context, parameter, x, sum);
  accumulate_rows<G>(context, parameter, x, sum);
}
}  // namespace detail

/// The same in a layer. Under NumericsOptions::reproducible_degree a sum over rows that cp or tp cuts has fixed terms.
template <class Context, class P, AnyTensor L, AnyTensor R>
void accumulate_product(const Context& context, P& parameter, const L& l, const R& r) {
  detail::accumulate_product_of_rows(context, parameter, l, l, r,
                                     [](std::size_t first, std::size_t count) { return std::pair(first, count); });
}

/// x [tokens, in] times w, plus bias [out]; RJ 0: w is [out, in], RJ 1: w is [in, out].
template <int RJ, AnyTensor X, AnyTensor W, AnyTensor B>
auto linear(const X& x, const W& w, const B& bias) {
  using Y = contract_t<X, W, 0, RJ>;
  const auto e = detail::matmul_extents(x, w, false, RJ);
  detail::require_extents("linear", w, e.n, bias);
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
  detail::require_extents("linear_gelu", w, e.n, bias);
  Y before(x.device(), e.product), after(x.device(), e.product);
  if constexpr (fits && !detail::RowRules<Y, B>::bias) detail::refuse_row<Y, B, false>();
  else if constexpr (fits)
    detail::for_each_block_of_rows(x, [&](const auto* rows, std::size_t first, std::size_t m) {
      kernels::matmul_gelu(x.device(), RJ ? kernels::Transpose::no : kernels::Transpose::yes, m, e.n, e.k, rows, w.data(),
                           bias.data(), before.data() + first * e.n, after.data() + first * e.n);
    });
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
  detail::require_same_shape("contract_gelu", out, before);
  if constexpr (detail::contract_fits<G, W, 0, RJ>)
    detail::for_each_block_of_rows(g, [&](const auto* rows, std::size_t first, std::size_t m) {
      kernels::matmul_gelu_backward(g.device(), RJ ? kernels::Transpose::no : kernels::Transpose::yes, m, e.n, e.k, rows,
                                    w.data(), before.data() + first * e.n, out.data() + first * e.n);
    });
  return out;
}

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

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/products_impl.hpp>
#endif
