// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of two batches of matrices, for custom attention. An axis may cut the batch (both operands alike), or
// the matrices as it may cut those of matmul.
//
//   auto scores = batched_matmul_transposed(q, k);   // [b, m, k] times [b, n, k]ᵀ -> [b, m, n]
//   auto y = batched_matmul(softmax<2>(scores), v);  // [b, m, n] times [b, n, k] -> [b, m, k]

#include <cstddef>
#include <type_traits>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/matmul.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

// The rule on one axis: both batches cut, or that of a matrix for dims 1 and 2.
template <class L, class R, int LI, int RJ>
struct BatchedRule {
  static constexpr bool batch = shard_dim<L> == 0 && shard_dim<R> == 0;
  static constexpr ContractRule rule = batch ? ContractRule{Kind::shard, -1}
                                       : shard_dim<L> == 0 || shard_dim<R> == 0
                                           ? ContractRule{Kind::partial, -1, ContractFault::no_rule}
                                           : contract_rule(kind_of<L>, shard_dim<L> - 1, kind_of<R>, shard_dim<R> - 1, LI, RJ);
  using type = typename Placed<typename L::axis, rule.kind, rule.dim + 1>::type;
};
// The first fault of all axes; without the error that BatchedContract prints.
template <class L, class R, int LI, int RJ>
inline constexpr ContractFault batched_fault = ContractFault::no_rule;
template <class T, class E, class... PL, class... PR, int LI, int RJ>
requires(std::is_same_v<Axes<typename PL::axis...>, Axes<typename PR::axis...>>) inline constexpr ContractFault
    batched_fault<Tensor<T, E, PL...>, Tensor<T, E, PR...>, LI, RJ> = [] {
      ContractFault first = ContractFault::none;
      (void(first = first == ContractFault::none ? BatchedRule<PL, PR, LI, RJ>::rule.fault : first), ...);
      return first;
    }();
template <class L, class R, int LI, int RJ>
struct BatchedContract : RefusedOperands<L, R> {
  using type = L;
};
template <class T, class E, class... PL, class... PR, int LI, int RJ>
requires(std::is_same_v<Axes<typename PL::axis...>,
                        Axes<typename PR::axis...>>) struct BatchedContract<Tensor<T, E, PL...>, Tensor<T, E, PR...>, LI, RJ> {
  static constexpr ContractFault fault = batched_fault<Tensor<T, E, PL...>, Tensor<T, E, PR...>, LI, RJ>;
  static constexpr bool fits = fault == ContractFault::none;
  static_assert(
      fault != ContractFault::partial_by_partial,
      "weft: batched_matmul of Partial by Partial: a product of sums is not the sum of products; reduce one operand first");
  static_assert(fault != ContractFault::not_entered,
                "weft: batched_matmul of an Invariant operand with a sharded or Replicated one: enter the parallel region first, "
                "to<Replicated<axis>>(x), on tensors (context, x), or its gradient loses a sum");
  static_assert(
      fault != ContractFault::no_rule,
      "weft: batched_matmul has no rule for these placements: on each axis the batch is cut in both, or one operand is cut "
      "along a dim that stays in the product and the other Replicated, or both along the dim that is summed");
  using type = Tensor<T, E, typename BatchedRule<PL, PR, LI, RJ>::type...>;
};

// Prints why a forward cannot multiply these.
template <class L, class R, int LI, int RJ>
AlreadyRefused refused_batched_product() {
  (void)sizeof(BatchedContract<L, R, LI, RJ>);
  return {};
}

}  // namespace detail

/// z[b, i, j] = Σ l r: l's dim LI + 1 and r's dim RJ + 1 remain beside the batch, dim 0; the other two are summed.
template <int LI, int RJ, AnyTensor L, AnyTensor R>
auto batched_contract(const L& l, const R& r) {
  using Rule = detail::BatchedContract<L, R, LI, RJ>;
  if (l.shape().rank() != 3 || r.shape().rank() != 3 || l.shape()[0] != r.shape()[0])
    throw_error<ShapeError>(
        {detail::call_text("batched_matmul", {l, r}), ": expected two batches of as many matrices, [b, rows, columns]"});
  const std::size_t batch = l.shape()[0], m = l.shape()[LI + 1], k = l.shape()[2 - LI], n = r.shape()[RJ + 1];
  if (k != r.shape()[2 - RJ])
    throw_error<ShapeError>(
        {detail::call_text("batched_matmul", {l, r}), ": the summed dims differ, ", k, " and ", r.shape()[2 - RJ]});
  Shape shape{batch, m, n};
  shape.set_sharding(0, l.shape().with_cuts_of(Shape(r.shape()).set_sharding(1, {}).set_sharding(2, {})).sharding(0))
      .set_sharding(1, l.shape().sharding(LI + 1))
      .set_sharding(2, r.shape().sharding(RJ + 1));
  typename Rule::type out(l.device(), shape);
  if constexpr (Rule::fits) {
    using T = typename L::value_type;
    const std::size_t lda = l.shape()[2], ldb = r.shape()[2];
    for (std::size_t b = 0; b < batch; ++b)
      kernels::matmul<T, T>(l.device(), LI ? kernels::Transpose::yes : kernels::Transpose::no,
                            RJ ? kernels::Transpose::no : kernels::Transpose::yes, m, n, k, l.data() + b * m * k, lda,
                            r.data() + b * k * n, ldb, out.data() + b * m * n, n);
  }
  return out;
}

namespace operations {

/// x [b, m, k] times y [b, k, n] -> [b, m, n]. Gradients: batched_contract<0, 0>(g, y) and batched_contract<1, 1>(x, g).
template <AnyTensor X, AnyTensor Y>
auto batched_matmul(const X& x, const Y& y) {
  return batched_contract<0, 1>(x, y);
}
/// x [b, m, k] times y [b, n, k] transposed -> [b, m, n]. Gradients: batched_contract<0, 1>(g, y) and batched_contract<1, 1>(g,
/// x).
template <AnyTensor X, AnyTensor Y>
auto batched_matmul_transposed(const X& x, const Y& y) {
  return batched_contract<0, 0>(x, y);
}
/// x [b, k, m] transposed times y [b, k, n] -> [b, m, n]. Gradients: batched_contract<0, 0>(y, g) and batched_contract<0, 1>(x,
/// g).
template <AnyTensor X, AnyTensor Y>
auto batched_transposed_matmul(const X& x, const Y& y) {
  return batched_contract<1, 1>(x, y);
}

// The same on Variables.
template <class C, class X, class Y>
auto batched_matmul(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (detail::batched_fault<X, Y, 0, 1> != detail::ContractFault::none)
    return detail::refused_batched_product<X, Y, 0, 1>();
  else
    return detail::record(x, batched_matmul(x.value(), y.value()),
                          detail::from(x, [b = y.value()](const auto&, const auto& g) { return batched_contract<0, 0>(g, b); }),
                          detail::from(y, [a = x.value()](const auto&, const auto& g) { return batched_contract<1, 1>(a, g); }));
}
template <class C, class X, class Y>
auto batched_matmul_transposed(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (detail::batched_fault<X, Y, 0, 0> != detail::ContractFault::none)
    return detail::refused_batched_product<X, Y, 0, 0>();
  else
    return detail::record(x, batched_matmul_transposed(x.value(), y.value()),
                          detail::from(x, [b = y.value()](const auto&, const auto& g) { return batched_contract<0, 1>(g, b); }),
                          detail::from(y, [a = x.value()](const auto&, const auto& g) { return batched_contract<1, 1>(g, a); }));
}
template <class C, class X, class Y>
auto batched_transposed_matmul(const Variable<C, X>& x, const Variable<C, Y>& y) {
  if constexpr (detail::batched_fault<X, Y, 1, 1> != detail::ContractFault::none)
    return detail::refused_batched_product<X, Y, 1, 1>();
  else
    return detail::record(x, batched_transposed_matmul(x.value(), y.value()),
                          detail::from(x, [b = y.value()](const auto&, const auto& g) { return batched_contract<0, 0>(b, g); }),
                          detail::from(y, [a = x.value()](const auto&, const auto& g) { return batched_contract<0, 1>(a, g); }));
}

}  // namespace operations

}  // namespace weft
