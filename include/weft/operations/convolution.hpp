// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two-dimensional convolutions of placed images. dp cuts the samples; tp cuts the output channels (as a column-parallel product:
// x Replicated, w Shard<tp, 0>) or the input channels (as a row-parallel one, whose result is Partial). A cut of the height or
// width would need neighbours' pixels and is refused.
//
//   auto y = conv2d(x, w, {.stride = 2, .padding = 1});   // [samples, in, h, w] by [out, in, kh, kw] -> [samples, out, h', w']

#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/convolution.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// The step between outputs and the zeros around the image, in pixels, in both directions.
struct ConvolutionOptions {
  std::size_t stride = 1, padding = 0;
};

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
      "weft: conv2d has no rule for these placements: on each axis both operands are whole and alike, or the samples are "
      "cut (Shard<axis, 0>) and the weights Replicated, or x is Replicated and w cut along its outputs (Shard<axis, 0>), or "
      "both are cut along the input channels (Shard<axis, 1>), which gives a Partial result; a depthwise one is cut along "
      "the channels of both; bring one there with to<...>(x), on tensors (context, x)");
  using type = Tensor<T, E,
                      typename Placed<typename PL::axis, convolution_rule<depthwise, PL, PR, LI, RJ>().kind,
                                      convolution_rule<depthwise, PL, PR, LI, RJ>().dim>::type...>;
};

// Prints why a forward cannot convolve these.
template <bool depthwise, class X, class W>
AlreadyRefused refused_convolution() {
  (void)sizeof(Convolved<depthwise, X, W, 0, 0>);
  return {};
}

kernels::ConvolutionShape convolution_shape(const char* operation, NamedOperand image, NamedOperand weights,
                                            const ConvolutionOptions& options, bool depthwise);

template <bool depthwise, class X, class W, class B>
auto convolve(const char* operation, const X& x, const W& w, const B* bias, const ConvolutionOptions& options) {
  using Rule = Convolved<depthwise, X, W, 0, 0>;
  const kernels::ConvolutionShape s = convolution_shape(operation, x, w, options, depthwise);
  Shape shape{s.samples, s.out, s.out_height(), s.out_width()};
  shape.set_sharding(0, x.shape().sharding(0)).set_sharding(1, w.shape().sharding(0));
  typename Rule::type y(x.device(), shape);
  if constexpr (Rule::fits) {
    using T = typename X::value_type;
    const T* added = nullptr;
    if constexpr (!std::is_same_v<B, Nothing>) {
      if constexpr (!RowRules<typename Rule::type, B>::bias) refuse_row<typename Rule::type, B, false>();
      else {
        if (bias->size() != s.out)
          throw_error<ShapeError>(
              {call_text(operation, {x, w, *bias}), ": ", s.out, " channels out and a bias of ", bias->size()});
        added = bias->data();
      }
    }
    kernels::convolution_forward<T>(x.device(), s, x.data(), w.data(), added, y.data());
  }
  return y;
}
template <bool depthwise, class X, class W, class G>
auto convolve_input_gradient(const Shape& x, const W& w, const G& g, const ConvolutionOptions& options) {
  using Rule = Convolved<depthwise, G, W, 0, 1>;
  const kernels::ConvolutionShape s = convolution_shape("conv2d_input_gradient", x, w, options, depthwise);
  gradient_t<X> dx(g.device(), x);
  if constexpr (Rule::fits) {
    static_assert(std::is_same_v<typename Rule::type, gradient_t<X>>);
    kernels::convolution_backward_input<typename X::value_type>(g.device(), s, g.data(), w.data(), dx.data());
  }
  return dx;
}
// In elements of type S: that of x, or accumulate_t of it for a parameter, which adds it up so.
template <bool depthwise, class S, class X, class G>
auto convolve_weight_gradient(const X& x, const Shape& w, const G& g, const ConvolutionOptions& options) {
  using T = typename X::value_type;
  using Rule = Convolved<depthwise, G, X, 1, 1>;
  const kernels::ConvolutionShape s = convolution_shape("conv2d_weight_gradient", x, w, options, depthwise);
  with_scalar_t<typename Rule::type, S> dw(x.device(), w);
  if constexpr (Rule::fits) {
    if constexpr (std::is_same_v<S, accumulate_t<T>>) {
      kernels::convolution_backward_weight<T>(x.device(), s, x.data(), g.data(), dw.data());
    } else {
      const Tensor<accumulate_t<T>, typename X::execution_space> sums(x.device(), w);
      kernels::convolution_backward_weight<T>(x.device(), s, x.data(), g.data(), sums.data());
      kernels::cast<accumulate_t<T>, T>(x.device(), sums.size(), sums.data(), dw.data());
    }
  }
  return dw;
}

// Records a convolution by a parameter of the shape `weights`. `more`: the steps of backward of further operands.
template <bool Depthwise, class Y, class C, class X, Placement... R, class... More>
auto record_convolution(Y y, const Variable<C, X>& x, const Parameter<R...>& w, const Shape& weights,
                        const ConvolutionOptions& options, More... more) {
  return record(x, std::move(y),
                from(x,
                     [w, shape = x.shape(), options](const auto&, const auto& g) {
                       return convolve_input_gradient<Depthwise, X>(shape, w.template for_operand_type<X>(g.device()), g,
                                                                    options);
                     }),
                from(w,
                     [x = x.value(), weights, options](const auto& context, auto& to, const auto& g) {
                       to.accumulate(context, convolve_weight_gradient<Depthwise, number_t<X>>(x, weights, g, options));
                     }),
                std::move(more)...);
}

// The placement of sums over samples and pixels, one number for each channel.
struct ChannelSums {
  template <class P>
  using of = std::conditional_t<shard_dim<P> == 0 || (shard_dim<P> > 1), Partial<typename P::axis>,
                                std::conditional_t<shard_dim<P> == 1, Shard<typename P::axis, 0>, P>>;
};

}  // namespace detail

namespace operations {

/// x [samples, in, height, width] by w [out, in, kernel height, kernel width] -> [samples, out, height', width'], with height' =
/// (height + 2 padding - kernel height) / stride + 1. Placements: rules.hpp. Throws ShapeError for extents that do not fit.
/// Gradients: conv2d_input_gradient(x, w, g, options), conv2d_weight_gradient(x, w, g, options).
template <AnyTensor X, AnyTensor W>
auto conv2d(const X& x, const W& w, const ConvolutionOptions& options = {}) {
  return detail::convolve<false>("conv2d", x, w, static_cast<const Nothing*>(nullptr), options);
}
/// The same plus bias [out], placed as the result's channels: Shard<tp, 0> beside w's. Its gradient: sum_channels(g).
template <AnyTensor X, AnyTensor W, AnyTensor B>
auto conv2d(const X& x, const W& w, const B& bias, const ConvolutionOptions& options = {}) {
  return detail::convolve<false>("conv2d", x, w, &bias, options);
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto conv2d_input_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  return detail::convolve_input_gradient<false, X>(x.shape(), w, g, options);
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto conv2d_weight_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  return detail::convolve_weight_gradient<false, typename W::value_type>(x, w.shape(), g, options);
}

/// Each channel of x [samples, channels, height, width] by its own kernel, w [channels, 1, kernel height, kernel width]. tp may
/// cut the channels of both.
template <AnyTensor X, AnyTensor W>
auto depthwise_conv2d(const X& x, const W& w, const ConvolutionOptions& options = {}) {
  return detail::convolve<true>("depthwise_conv2d", x, w, static_cast<const Nothing*>(nullptr), options);
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto depthwise_conv2d_input_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  return detail::convolve_input_gradient<true, X>(x.shape(), w, g, options);
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto depthwise_conv2d_weight_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  return detail::convolve_weight_gradient<true, typename W::value_type>(x, w.shape(), g, options);
}

/// The sum over samples and pixels of x [samples, channels, ...], [channels] in accumulate_t: the gradient of a bias of channels.
/// Partial on an axis that cuts samples.
template <AnyTensor X>
auto sum_channels(const X& x) {
  detail::require_dim("sum_channels", x, 1);
  const std::size_t samples = x.shape()[0], channels = x.shape()[1];
  detail::ruled_t<detail::ChannelSums, X, accumulate_t<typename X::value_type>> out(
      x.device(), Shape{channels}.set_sharding(0, x.shape().sharding(1)));
  const std::size_t pixels = samples * channels == 0 ? 0 : x.size() / (samples * channels);
  kernels::sum_channels<typename X::value_type>(x.device(), samples, channels, pixels, x.data(), out.data());
  return out;
}

/// The same on Variables and Parameters, for a weight or bias of the latter.
template <class C, class X, class W>
auto conv2d(const Variable<C, X>& x, const Variable<C, W>& w, const ConvolutionOptions& options = {}) {
  if constexpr (!detail::convolution_fits<false, X, W>) return detail::refused_convolution<false, X, W>();
  else
    return detail::record(x, conv2d(x.value(), w.value(), options),
                          detail::from(x,
                                       [shape = x.shape(), w = w.value(), options](const auto&, const auto& g) {
                                         return detail::convolve_input_gradient<false, X>(shape, w, g, options);
                                       }),
                          detail::from(w, [x = x.value(), shape = w.shape(), options](const auto&, const auto& g) {
                            return detail::convolve_weight_gradient<false, typename W::value_type>(x, shape, g, options);
                          }));
}
template <class C, class X, Placement... R>
auto conv2d(const Variable<C, X>& x, const Parameter<R...>& w, const ConvolutionOptions& options = {}) {
  const auto weights = w.for_operand(x.value());
  using W = std::remove_const_t<decltype(weights)>;
  if constexpr (!detail::convolution_fits<false, X, W>) return detail::refused_convolution<false, X, W>();
  else return detail::record_convolution<false>(conv2d(x.value(), weights, options), x, w, weights.shape(), options);
}
template <class C, class X, Placement... R, Placement... S>
auto conv2d(const Variable<C, X>& x, const Parameter<R...>& w, const Parameter<S...>& bias,
            const ConvolutionOptions& options = {}) {
  const auto weights = w.for_operand(x.value());
  using W = std::remove_const_t<decltype(weights)>;
  if constexpr (!detail::convolution_fits<false, X, W>) {
    return detail::refused_convolution<false, X, W>();
  } else {
    using Y = typename detail::Convolved<false, X, W, 0, 0>::type;
    const auto added = bias.template for_operand_type<Y>(x.value().device());
    auto y = conv2d(x.value(), weights, added, options);
    if constexpr (!detail::RowRules<Y, std::remove_const_t<decltype(added)>>::bias) return detail::AlreadyRefused();
    else
      return detail::record_convolution<false>(
          std::move(y), x, w, weights.shape(), options,
          detail::from(bias, [](const auto& context, auto& to, const auto& g) { to.accumulate(context, sum_channels(g)); }));
  }
}
// Refuses temporaries, which no longer exist in backward.
template <class C, class X, Placement... R>
detail::AlreadyRefused conv2d(const Variable<C, X>&, const Parameter<R...>&&, const ConvolutionOptions& = {}) {
  return detail::refused_temporary<X>();
}
template <class C, class X, Placement... R, Placement... S>
detail::AlreadyRefused conv2d(const Variable<C, X>&, const Parameter<R...>&&, const Parameter<S...>&,
                              const ConvolutionOptions& = {}) {
  return detail::refused_temporary<X>();
}
template <class C, class X, Placement... R, Placement... S>
detail::AlreadyRefused conv2d(const Variable<C, X>&, const Parameter<R...>&, const Parameter<S...>&&,
                              const ConvolutionOptions& = {}) {
  return detail::refused_temporary<X>();
}
template <class C, class X, Placement... R, Placement... S>
detail::AlreadyRefused conv2d(const Variable<C, X>&, const Parameter<R...>&&, const Parameter<S...>&&,
                              const ConvolutionOptions& = {}) {
  return detail::refused_temporary<X>();
}
template <class C, class X, Placement... R>
auto depthwise_conv2d(const Variable<C, X>& x, const Parameter<R...>& w, const ConvolutionOptions& options = {}) {
  const auto weights = w.for_operand(x.value());
  using W = std::remove_const_t<decltype(weights)>;
  if constexpr (!detail::convolution_fits<true, X, W>) return detail::refused_convolution<true, X, W>();
  else return detail::record_convolution<true>(depthwise_conv2d(x.value(), weights, options), x, w, weights.shape(), options);
}
template <class C, class X, Placement... R>
detail::AlreadyRefused depthwise_conv2d(const Variable<C, X>&, const Parameter<R...>&&, const ConvolutionOptions& = {}) {
  return detail::refused_temporary<X>();
}

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/convolution_impl.hpp>
#endif
