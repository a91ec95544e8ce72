// SPDX-License-Identifier: Apache-2.0
#pragma once
// The placements of convolutions: which operands have a rule, and their result's type. The table is in operations/rules.hpp.
//
//   using Y = typename Convolved<false, X, W, 0, 0>::type;   // one error if there is no rule

#include <type_traits>

#include <weft/operations/convolution_options.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/rows.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {

// Both operands are cut along the channels, each of which is convolved alone; LI and RJ are as for a product.
template <class L, class R>
constexpr ContractRule channel_rule(bool weight_gradient) {
  if (weight_gradient) {  // g and x
    if (shard_dim<L> == 1 && shard_dim<R> == 1) return {Kind::shard, 0};
    if (shard_dim<L> == 1 || shard_dim<R> == 1) return {Kind::partial, -1, ContractFault::no_rule};
    return contract_rule(kind_of<L>, shard_dim<L>, kind_of<R>, shard_dim<R>, 1, 1);
  }
  if (shard_dim<L> == 1 && shard_dim<R> == 0) return {Kind::shard, 1};
  if (shard_dim<L> == 1 || shard_dim<R> >= 0) return {Kind::partial, -1, ContractFault::no_rule};
  return contract_rule(kind_of<L>, shard_dim<L>, kind_of<R>, shard_dim<R>, 0, 0);
}
template <bool depthwise, class L, class R, int LI, int RJ>
constexpr ContractRule convolution_rule() {
  if constexpr (depthwise) return channel_rule<L, R>(LI == 1);
  else return contract_rule(kind_of<L>, shard_dim<L>, kind_of<R>, shard_dim<R>, LI, RJ);
}
// Whether there is a rule; without the error that Convolved prints.
template <bool depthwise, class L, class R, int LI = 0, int RJ = 0>
inline constexpr bool convolution_fits = false;
template <bool depthwise, class T, class E, class... PL, class... PR, int LI, int RJ>
requires(std::is_same_v<Axes<typename PL::axis...>, Axes<typename PR::axis...>>) inline constexpr bool convolution_fits<
    depthwise, Tensor<T, E, PL...>, Tensor<T, E, PR...>, LI, RJ> = ((convolution_rule<depthwise, PL, PR, LI, RJ>().fault ==
                                                                     ContractFault::none) &&
                                                                    ...);
template <bool depthwise, class L, class R, int LI, int RJ>
struct Convolved : RefusedOperands<L, R> {
  using type = L;
};
template <bool depthwise, class T, class E, class... PL, class... PR, int LI, int RJ>
requires(std::is_same_v<Axes<typename PL::axis...>, Axes<typename PR::axis...>>) struct Convolved<depthwise, Tensor<T, E, PL...>,
                                                                                                  Tensor<T, E, PR...>, LI, RJ> {
  static constexpr bool fits = convolution_fits<depthwise, Tensor<T, E, PL...>, Tensor<T, E, PR...>, LI, RJ>;
  static_assert((require_real<T>(), true));
  static_assert(
      fits,
      "weft: a convolution has no rule for these placements: on each axis both operands are whole and alike, or the samples are "
      "cut (Shard<axis, 0>) and the weights Replicated, or x is Replicated and w cut along its outputs (Shard<axis, 0>), or "
      "both are cut along the input channels (Shard<axis, 1>), which gives a Partial result; the weights of a transposed one "
      "are [in, out, ...]; a depthwise one is cut along the channels of both; no axis cuts the dims of an image, except "
      "with a halo and the window in the type, conv2d<Window{3, 1, 1}>(to<Halo<axis, 2, 1>>(x), w); bring one there with "
      "to<...>(x), on tensors (context, x)");
  using type = Tensor<T, E,
                      typename Placed<typename PL::axis, convolution_rule<depthwise, PL, PR, LI, RJ>().kind,
                                      convolution_rule<depthwise, PL, PR, LI, RJ>().dim>::type...>;
};

// Prints why a forward cannot convolve these.
template <ConvolutionKind kind, class X, class W>
AlreadyRefused refused_convolution() {
  constexpr bool depthwise = kind == ConvolutionKind::depthwise;
  (void)sizeof(Convolved < depthwise, X, W, 0, kind == ConvolutionKind::transposed ? 1 : 0 >);
  return {};
}

// The placement of sums over samples and pixels, one number for each channel.
struct ChannelSums {
  template <class P>
  using of = std::conditional_t<shard_dim<P> == 0 || (shard_dim<P> > 1), Partial<typename P::axis>,
                                std::conditional_t<shard_dim<P> == 1, Shard<typename P::axis, 0>, P>>;
};

}  // namespace detail

}  // namespace weft
