// SPDX-License-Identifier: Apache-2.0
// Equations of einsum that are none, and operands that do not fit.
#include <weft/operations/einsum.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

// section: diagonal
// One letter for two dims of an operand would be a diagonal.
// expect: einsum: a letter twice in one operand or in the result
#ifdef WEFT_FAIL
auto go(X<> x, X<> y) { return einsum<"ii,ij->j">(x, y); }
#else
auto go(X<> x, X<> y) { return einsum<"bi,ij->bj">(x, y); }
#endif

// section: dim_of_one_operand
// A dim that only one operand has is summed before.
// expect: einsum: a letter that only one operand or only the result has
// mention: sum<dim>\(x\)
struct Own : Module<Own> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(einsum<"ij,jk->i">(x, transpose<0, 1>(x))); }
#else
  auto forward(const auto& x) const { return exp(einsum<"ij,j->i">(x, sum<1>(transpose<0, 1>(x)))); }
#endif
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: no_equation
// A text without an arrow.
// expect: einsum takes two operands and a result
// mention: bij,bjk->bik
struct Own : Module<Own> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(einsum<"ij,kj">(x, x)); }
#else
  auto forward(const auto& x) const { return exp(einsum<"ij,kj->ik">(x, x)); }
#endif
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: one_operand
// A sum or a permutation of one operand has an operation.
// expect: einsum cannot be called with these arguments
struct Own : Module<Own> {
#ifdef WEFT_FAIL
  auto forward(const auto& x) const { return exp(einsum<"ij->ji">(x)); }
#else
  auto forward(const auto& x) const { return exp(transpose<0, 1>(x)); }
#endif
};

auto go() {
  return testing::check_layer([](const auto&) { return Own(); }, {3, 4});
}

// section: summed_letter_cut_in_one
// Each rank has a part of a summed dim of one operand, and the whole of the other.
// expect: einsum has no rule for these placements
#ifdef WEFT_FAIL
auto go(X<Shard<tp, 1>> x, X<Shard<tp, 1>> y) { return einsum<"ij,jk->ik">(x, y); }
#else
auto go(X<Shard<tp, 1>> x, X<Shard<tp, 0>> y) { return einsum<"ij,jk->ik">(x, y); }
#endif

// section: whole_beside_cut
// The gradient of a whole operand beside a cut one is a sum over the ranks.
// expect: einsum of an Invariant operand with a sharded or Replicated one
// mention: to<Replicated<axis>>
#ifdef WEFT_FAIL
auto go(X<Shard<tp, 0>> x, X<Invariant<tp>> y) { return einsum<"ij,jk->ik">(x, y); }
#else
auto go(X<Shard<tp, 0>> x, X<Replicated<tp>> y) { return einsum<"ij,jk->ik">(x, y); }
#endif
