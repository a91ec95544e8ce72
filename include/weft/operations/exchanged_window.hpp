// SPDX-License-Identifier: Apache-2.0
#pragma once
// Windows that bring their halo themselves: convolutions whose kernel is known when the program runs, over images that domain
// axes cut. Each call has its exchange; windows that share one have their sizes in the type (operations/window.hpp).
//
//   auto y = detail::exchanged_convolution<2, ConvolutionKind::plain>("conv2d", kernel, options, x, weight);   // Shard<dx, 2>

#include <weft/operations/convolution.hpp>
#include <weft/operations/exchanged_rows.hpp>

namespace weft::detail {

/// conv1d to conv3d, or the transposed ones, of x, whose images domain axes cut; the result is placed as x along them. One
/// exchange for each such axis.
template <int dims, ConvolutionKind kind, class C, class X, class... W>
auto exchanged_convolution(const char* operation, const PerDim& kernel, const ConvolutionOptions& options,
                           const Variable<C, X>& x, const W&... weights) {
  constexpr auto plan = kind == ConvolutionKind::transposed ? cut_transposed : cut_window;
  return exchanged<dims>(operation, options, x, plan_of(plan, kernel), [&](const auto& images, const ConvolutionOptions& sides) {
    return convolution_of<kind>(operation, dims, sides, images, weights...);
  });
}

}  // namespace weft::detail
