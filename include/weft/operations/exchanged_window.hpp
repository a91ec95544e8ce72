// SPDX-License-Identifier: Apache-2.0
#pragma once
// Windows that bring their halo themselves: convolutions whose kernel is known when the program runs, over images that domain
// axes cut. Each call has its exchange; windows that share one have their sizes in the type (operations/window.hpp).
//
//   auto y = detail::exchanged_convolution<2>("conv2d", kernel, options, x, weight);   // x and y Shard<dx, 2>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include <weft/operations/convolution.hpp>
#include <weft/operations/window.hpp>
#include <weft/tensor/halo.hpp>

namespace weft::detail {

/// Whether domain axes, and no others, cut the images.
template <class X>
inline constexpr bool cut_in_space = false;
template <class T, class E, class... P>
inline constexpr bool cut_in_space<Tensor<T, E, P...>> = ((shard_dim<P> >= 2) || ...) &&
                                                         ((shard_dim<P> < 2 || is_domain_axis<typename P::axis>)&&...);

/// Throws ShapeError for a window whose outputs of a piece would not follow those of the previous one.
Reach require_reach(const char* operation, std::size_t kernel, const ConvolutionOptions& options, std::size_t dim);

// The first of the axes that cut the images; Nothing if none does.
template <class X>
struct FirstCut {
  using type = Nothing;
};
template <class T, class E, class P, class... R>
struct FirstCut<Tensor<T, E, P, R...>> {
  using type = typename std::conditional_t<(shard_dim<P> >= 2), std::type_identity<P>, FirstCut<Tensor<T, E, R...>>>::type;
};

/// x, cut as P, with the rows of the neighbours; its ranks have samples then.
template <class P, class V>
auto bring_for_window(const V& x, Reach reach) {
  using X = typename V::tensor_type;
  using A = typename P::axis;
  constexpr std::size_t dim = shard_dim<P>;
  const HaloRows rows(x.context().comm(A()), reach);
  auto wide = bring_halo<replace_t<X, Shard<A, 0>>>(x.context().comm(A()), A::name, x.value(), dim, rows);
  return record(x, std::move(wide), from(x, [rows](const auto& context, const auto& g) {
                  return send_halo_home<gradient_t<X>>(context.comm(A()), A::name, g, dim, rows);
                }));
}

/// f(images, options) of images with their halos, in the options of this rank's sides; the result is cut as x.
template <int dims, class C, class X, class F>
auto exchanged(const char* operation, const PerDim& kernel, const ConvolutionOptions& options, const Variable<C, X>& x, F&& f) {
  using P = typename FirstCut<X>::type;
  if constexpr (std::is_same_v<P, Nothing>) {
    return f(x, options);
  } else {
    using A = typename P::axis;
    constexpr std::size_t at = std::size_t(shard_dim<P>) - 2;
    static_assert(at < dims, "weft: an axis cuts a dim that images of this convolution do not have");
    const Reach reach = require_reach(operation, kernel[at], options, at);
    const HaloRows rows(x.context().comm(A()), reach);
    if (!rows.last && x.shape().rank() > at + 2)
      require_rows_of_stride(operation, A::name, {x.value()}, x.shape()[at + 2], options.stride[at]);
    ConvolutionOptions sides = options;
    std::array<std::size_t, dims> before, after;
    const PerDim& behind = options.padding_after.count() == 0 ? options.padding : options.padding_after;
    for (std::size_t dim = 0; dim < dims; ++dim) before[dim] = options.padding[dim], after[dim] = behind[dim];
    if (!rows.first) before[at] = 0;
    if (!rows.last) after[at] = 0;
    sides.padding = PerDim::of(before), sides.padding_after = PerDim::of(after);
    // The reach along other dims follows from their paddings, which are still those of the whole there.
    const auto y = exchanged<dims>(operation, kernel, sides, bring_for_window<P>(x, reach), std::forward<F>(f));
    using V = std::remove_const_t<decltype(y)>;
    if constexpr (is_silent<V>) return AlreadyRefused();
    else return relabelled<replace_t<typename V::tensor_type, P>>(y);
  }
}

/// conv1d to conv3d of x, whose images domain axes cut, placed as x along its images. One exchange for each such axis.
template <int dims, class C, class X, class... W>
auto exchanged_convolution(const char* operation, const PerDim& kernel, const ConvolutionOptions& options,
                           const Variable<C, X>& x, const W&... weights) {
  return exchanged<dims>(operation, kernel, options, x, [&](const auto& images, const ConvolutionOptions& sides) {
    return convolution_of<ConvolutionKind::plain>(operation, dims, sides, images, weights...);
  });
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/operations/exchanged_window_impl.hpp>
#endif
