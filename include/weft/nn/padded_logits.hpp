// SPDX-License-Identifier: Apache-2.0
#pragma once
// Logits with padded rows. Libraries' fast GPU kernels need rows that begin at multiples of 16 bytes, which a vocabulary of
// 50,257 does not give, and three products per step read or write these rows. So on GPUs each row has memory for a multiple of 64
// logits. The padding is never computed, and has no probability and no gradient. Parameters are not padded by this. On hosts
// padding has no benefit, and rows are as long as the vocabulary.

#include <cstddef>

#include <weft/kernels/matmul.hpp>
#include <weft/nn/fixed_product.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/to.hpp>

namespace weft::detail {

/// Rows of logits have memory for a multiple of this number.
template <class Exec>
inline constexpr std::size_t logits_step = on_host<Exec> ? 1 : 64;

/// x [tokens, width] times wᵀ, w [columns, width] -> [tokens, columns and padding]; the padding is not written.
template <AnyTensor X, AnyTensor W>
auto padded_logits(const X& x, const W& w) {
  using T = typename X::value_type;
  using Z = contract_t<X, W, 0, 0>;
  constexpr std::size_t step = logits_step<typename X::execution_space>;
  const auto e = matmul_extents(x, w, false, false);
  Z z(x.device(), with_extent(e.product, 1, (e.n + step - 1) / step * step));
  if constexpr (contract_fits<X, W, 0, 0>)
    kernels::matmul<T, T>(x.device(), kernels::Transpose::no, kernels::Transpose::yes, e.m, e.n, e.k, x.data(), e.k, w.data(),
                          e.k, z.data(), z.columns());
  return z;
}

/// The gradient of x: g [tokens, columns and padding] times w [columns, width] -> [tokens, width]; the padding is not read.
template <class Context, AnyTensor G, AnyTensor W>
auto padded_logits_input_gradient(const Context& context, const G& g, const W& w) {
  using T = typename G::value_type;
  const auto e = matmul_extents(with_extent(g.shape(), 1, w.rows()), w.shape(), false, true);
  using X = contract_t<G, W, 0, 1>;
  if constexpr (contract_fits<G, W, 0, 1> && kind_of<placement_t<X, tp>> == Kind::partial)
    if (g.device().sum_terms() != 0) return product_of_fixed_terms<1, X>(context, e, g.data(), g.columns(), w, nullptr, {});
  X dx(g.device(), e.product);
  if constexpr (contract_fits<G, W, 0, 1>)
    kernels::matmul<T, T>(g.device(), kernels::Transpose::no, kernels::Transpose::no, e.m, e.n, e.k, g.data(), g.columns(),
                          w.data(), e.n, dx.data(), e.n);
  return dx;
}

/// Adds gᵀ x to the gradient of the table [columns, width] of such logits; computes nothing if it is frozen.
template <class Context, class P, AnyTensor G, AnyTensor X>
void accumulate_padded_product(const Context& context, P& table, const G& g, const X& x) {
  using T = typename G::value_type;
  const auto e = matmul_extents(with_extent(g.shape(), 1, table.state().local()[0]), x.shape(), true, true);
  require_gradient_size(e.product, e.m * e.n, table.state());
  if (!table.trainable()) return;
  accumulate_rows<contract_t<G, X, 1, 1>>(
      context, table, g, [&]<class C>(std::size_t first, std::size_t count, C* out, bool add) {
        if constexpr (contract_fits<G, X, 1, 1>)
          kernels::matmul<T, C>(g.device(), kernels::Transpose::yes, kernels::Transpose::no, e.m, e.n, count,
                                g.data() + first * g.columns(), g.columns(), x.data() + first * e.n, e.n, out, e.n, add);
      });
}

}  // namespace weft::detail
