// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products and rows inside of grad(f, x): products of matrices and of batches of them, and a vector added to each row or
// multiplied with it. Placements and shapes are those of the operations in products.hpp, batched.hpp and rows.hpp; each gradient
// is one of these operations.
//
//   auto slope = grad([&](const auto& p) { return matmul(tanh(matmul(p, in) + bias), out); }, x);

#include <type_traits>

#include <weft/autograd/nested_variable.hpp>
#include <weft/operations/batched.hpp>
#include <weft/operations/differentiable_functions.hpp>
#include <weft/operations/differentiable_sums.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/rows.hpp>
#include <weft/operations/variable_rows.hpp>
#include <weft/operations/variables.hpp>

namespace weft {

/// y[i, j] = Σ l r on Variables of any level: l's dim LI and r's dim RJ remain.
template <int LI, int RJ, class C, class L, class R>
auto contract(const Variable<C, L>& l, const Variable<C, R>& r) {
  using BL = detail::bottom_t<L>;
  using BR = detail::bottom_t<R>;
  if constexpr (!detail::contract_fits<BL, BR, LI, RJ>) return detail::refused_product<BL, BR, LI, RJ>();
  else
    return detail::binary(
        l, r, [](const auto& a, const auto& b) { return contract<LI, RJ>(a, b); },
        [](const auto&, const auto& b, const auto&, const auto& g) {
          if constexpr (LI == 0) return contract<0, 1 - RJ>(g, b);
          else return contract<1 - RJ, 0>(b, g);
        },
        [](const auto& a, const auto&, const auto&, const auto& g) {
          if constexpr (RJ == 0) return contract<1, 1 - LI>(g, a);
          else return contract<1 - LI, 1>(a, g);
        });
}

/// z[b, i, j] = Σ l r on Variables of any level: l's dim LI + 1 and r's dim RJ + 1 remain beside the batch.
template <int LI, int RJ, class C, class L, class R>
auto batched_contract(const Variable<C, L>& l, const Variable<C, R>& r) {
  using BL = detail::bottom_t<L>;
  using BR = detail::bottom_t<R>;
  if constexpr (detail::batched_fault<BL, BR, LI, RJ> != detail::ContractFault::none)
    return detail::refused_batched_product<BL, BR, LI, RJ>();
  else
    return detail::binary(
        l, r, [](const auto& a, const auto& b) { return batched_contract<LI, RJ>(a, b); },
        [](const auto&, const auto& b, const auto&, const auto& g) {
          if constexpr (LI == 0) return batched_contract<0, 1 - RJ>(g, b);
          else return batched_contract<1 - RJ, 0>(b, g);
        },
        [](const auto& a, const auto&, const auto&, const auto& g) {
          if constexpr (RJ == 0) return batched_contract<1, 1 - LI>(g, a);
          else return batched_contract<1 - LI, 1>(a, g);
        });
}

namespace operations {

template <class C, class X, class W>
requires(detail::Nested<X> || detail::Nested<W>) auto matmul(const Variable<C, X>& x, const Variable<C, W>& w) {
  return contract<0, 0>(x, w);
}
template <class C, class D, class X, Placement... R>
auto matmul(const Variable<C, Variable<D, X>>& x, const Parameter<R...>& w) {
  return contract<0, 0>(x, beside(x, w));
}

template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto batched_matmul(const Variable<C, X>& x, const Variable<C, Y>& y) {
  return batched_contract<0, 1>(x, y);
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto batched_matmul_transposed(const Variable<C, X>& x,
                                                                                const Variable<C, Y>& y) {
  return batched_contract<0, 0>(x, y);
}
template <class C, class X, class Y>
requires(detail::Nested<X> || detail::Nested<Y>) auto batched_transposed_matmul(const Variable<C, X>& x,
                                                                                const Variable<C, Y>& y) {
  return batched_contract<1, 1>(x, y);
}

/// v [columns] added to each row of x [rows, columns], and multiplied with it, on any level; placed as for parameters.
template <class C, class X, class V>
auto add_row(const Variable<C, X>& x, const Variable<C, V>& v) {
  return detail::binary(
      x, v, [](const auto& a, const auto& b) { return add_row(a, b); },
      [](const auto&, const auto&, const auto&, const auto& g) { return g; },
      [](const auto&, const auto&, const auto&, const auto& g) { return sum_rows(g); });
}
template <class C, class X, class V>
auto times_row(const Variable<C, X>& x, const Variable<C, V>& v) {
  return detail::binary(
      x, v, [](const auto& a, const auto& b) { return times_row(a, b); },
      [](const auto&, const auto& b, const auto&, const auto& g) { return times_row(g, b); },
      [](const auto& a, const auto&, const auto&, const auto& g) { return sum_rows(g * a); });
}
template <class C, class D, class X, Placement... R>
auto operator+(const Variable<C, Variable<D, X>>& x, const Parameter<R...>& bias) {
  return add_row(x, beside(x, bias));
}
template <class C, class D, class X, Placement... R>
auto operator-(const Variable<C, Variable<D, X>>& x, const Parameter<R...>& bias) {
  return add_row(x, -beside(x, bias));
}
template <class C, class D, class X, Placement... R>
auto times_row(const Variable<C, Variable<D, X>>& x, const Parameter<R...>& gain) {
  return times_row(x, beside(x, gain));
}

/// x times s [1], and each row times its number in v [rows].
template <class C, class X, class S>
requires(detail::Nested<X> || detail::Nested<S>) auto times_scalar(const Variable<C, X>& x, const Variable<C, S>& s) {
  return detail::binary(
      x, s, [](const auto& a, const auto& b) { return times_scalar(a, b); },
      [](const auto&, const auto& b, const auto&, const auto& g) { return times_scalar(g, b); },
      [](const auto& a, const auto&, const auto&, const auto& g) { return sum_all(g * a); });
}
template <class C, class X, class V>
requires(detail::Nested<X> || detail::Nested<V>) auto times_column(const Variable<C, X>& x, const Variable<C, V>& v) {
  return detail::binary(
      x, v, [](const auto& a, const auto& b) { return times_column(a, b); },
      [](const auto&, const auto& b, const auto&, const auto& g) { return times_column(g, b); },
      [](const auto& a, const auto&, const auto&, const auto& g) { return sum_columns(g * a); });
}

}  // namespace operations

}  // namespace weft
