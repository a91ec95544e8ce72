// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products that are sums over tp of fixed terms (tensor/fixed_terms.hpp): a term is the product of a fixed piece of the dim that
// is summed. If segments divide that dim (query, key and value in one matrix), a term has a piece of each.
//
//   product_of_fixed_terms<RJ, Y>(context, e, x.data(), x.columns(), w, bias_or_null, {});

#include <cstddef>
#include <span>

#include <weft/engine/parameter_cut.hpp>
#include <weft/operations/products.hpp>
#include <weft/tensor/fixed_terms.hpp>

namespace weft::detail {

/// x [m, k] times w, plus `bias` [n] unless it is null; RJ as in `linear`. Rows of x are `x_stride` numbers apart. `segments`: of
/// the whole dim that is summed, on all ranks; empty: one. The first rank's first term adds the bias. Collective.
template <int RJ, AnyTensor Y, class Context, AnyTensor W>
Y product_of_fixed_terms(const Context& context, const MatmulExtents& e, const typename Y::value_type* x, std::size_t x_stride,
                         const W& w, const typename Y::value_type* bias, std::span<const ParameterSharding::Segment> segments) {
  using T = typename Y::value_type;
  auto& device = w.device();
  const std::size_t ranks = context.size(tp{}), terms = device.sum_terms();
  const ParameterSharding::Segment whole{e.k * ranks, 0};
  if (segments.empty()) segments = std::span(&whole, 1);
  for (const auto& segment : segments) require_even_terms("a reduced dim", segment.extent / ranks, ranks, terms);
  return sum_of_fixed_terms<Y>(context.comm(tp{}), device, e.product, [&](std::size_t term, T* out) {
    std::size_t begin = 0;
    for (const auto& segment : segments) {
      const std::size_t here = segment.extent / ranks, count = here / terms, first = begin + term * count;
      kernels::matmul<T, T>(device, kernels::Transpose::no, RJ ? kernels::Transpose::no : kernels::Transpose::yes, e.m, e.n,
                            count, x + first, x_stride, w.data() + (RJ ? first * w.columns() : first), w.columns(), out, e.n,
                            begin != 0, begin == 0 && term == 0 && context.rank(tp{}) == 0 ? bias : nullptr);
      begin += here;
    }
  });
}

}  // namespace weft::detail
