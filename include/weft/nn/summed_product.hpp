// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products that are terms of a sum over tp: those of a Row layer in forward, and the input gradients of a Column layer. The
// product is pending, and `to` computes it in pieces of rows: while a piece is multiplied, the pieces before it are summed over
// the ranks (all-reduce, or reduce-scatter under sequence parallelism). The sum of pending products is pending (tensor/add.hpp).
//
//   auto y = summed_product<0>(context, x, w, bias_or_nothing);   // [tokens, in] times [out, in]ᵀ -> [tokens, out]
//
// Numerics: a piece is cut along rows, and its bits are a function of the shapes, of tp and of TensorOptions::piece_bytes. In
// double on hosts they are those of the whole product. In other types they differ by rounding: the order in which a library's
// product sums depends on the number of rows.

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

#include <weft/nn/fixed_product.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/gather_in_pieces.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// x times w, plus `bias` [out] unless it is Nothing; RJ as in `linear`. `segments`: of the whole dim that is summed.
template <int RJ, class Context, AnyTensor X, AnyTensor W, class B>
auto summed_product(const Context& context, const X& x, const W& w, const B& bias,
                    std::span<const ParameterSharding::Segment> segments = {}) {
  using Y = contract_t<X, W, 0, RJ>;
  using T = typename Y::value_type;
  constexpr bool plain = std::is_same_v<B, Nothing>;
  if constexpr (contract_fits<X, W, 0, RJ> && kind_of<placement_t<Y, tp>> == Kind::partial) {
    const auto e = matmul_extents(x, w, false, RJ);
    if constexpr (kind_of<placement_t<X, tp>> == Kind::shard)
      if (x.device().sum_terms() != 0) {
        const T* added = nullptr;
        if constexpr (!plain) {
          require_extents("linear", w, e.n, bias);
          added = bias.data();
        }
        return product_of_fixed_terms<RJ, Y>(context, e, x.data(), x.columns(), w, added, segments);
      }
    if (const std::size_t pieces = pieces_of_rows(context, e.m, e.n * sizeof(T)); pieces > 1) {
      if constexpr (!plain) require_extents("linear", w, e.n, bias);
      auto& device = x.device();
      return Y(device, e.product,
               std::make_shared<PendingRows>(
                   pieces, e.m, [&device, bytes = e.m * e.n * sizeof(T)] { return device.allocate(bytes); },
                   [e, x, w, bias](std::size_t first, std::size_t count, void* out) {
                     const T* added = nullptr;
                     if constexpr (plain) (void)bias;
                     else added = bias.data();
                     kernels::matmul<T, T>(x.device(), kernels::Transpose::no,
                                           RJ ? kernels::Transpose::no : kernels::Transpose::yes, count, e.n, e.k,
                                           x.data() + first * x.columns(), x.columns(), w.data(), w.columns(),
                                           static_cast<T*>(out), e.n, false, added);
                   }));
    }
  }
  if constexpr (plain) return contract<0, RJ>(x, w);
  else return linear<RJ>(x, w, bias);
}

}  // namespace weft::detail
