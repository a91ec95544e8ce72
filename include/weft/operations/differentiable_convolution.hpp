// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions inside of grad(f, x), in one to three dims, of any kind and with all options. A convolution is linear in its
// images and in its weights, and so are its two gradients: the three are each other's gradients. Placements and shapes are those
// of convolution.hpp.
//
//   auto slope = grad([&](const auto& u) { return square(conv2d(u, stencil, {.padding = 1, .mode = PaddingMode::periodic})); },
//   x);

#include <type_traits>

#include <weft/autograd/nested_variable.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/differentiable_functions.hpp>
#include <weft/operations/differentiable_parts.hpp>

namespace weft::detail {

// The gradients of images x of a shape, from w and g, and of weights w of a shape, from x and g; on any level.
template <ConvolutionKind kind, class X, AnyTensor W, AnyTensor G>
auto image_gradient(const ConvolutionCall& call, const ConvolutionOptions& options, const Shape& x, const W& w, const G& g) {
  return convolve_input_gradient<kind, X>(call, x, w, g, options);
}
template <ConvolutionKind kind, class W, AnyTensor X, AnyTensor G>
auto weight_gradient(const ConvolutionCall& call, const ConvolutionOptions& options, const Shape& w, const X& x, const G& g) {
  return convolve_weight_gradient<kind, typename W::value_type>(call, x, w, g, options);
}
template <ConvolutionKind kind, class W, class C, class X, class G>
auto weight_gradient(const ConvolutionCall& call, const ConvolutionOptions& options, const Shape& w, const Variable<C, X>& x,
                     const Variable<C, G>& g);
template <ConvolutionKind kind, class X, class C, class W, class G>
auto image_gradient(const ConvolutionCall& call, const ConvolutionOptions& options, const Shape& x, const Variable<C, W>& w,
                    const Variable<C, G>& g) {
  return binary(
      w, g, [=](const auto& b, const auto& h) { return image_gradient<kind, X>(call, options, x, b, h); },
      [=, shape = w.shape()](const auto&, const auto& h, const auto&, const auto& u) {
        return weight_gradient<kind, bottom_t<W>>(call, options, shape, u, h);
      },
      [=](const auto& b, const auto&, const auto&, const auto& u) { return convolution<kind>(call, options, u, b); });
}
template <ConvolutionKind kind, class W, class C, class X, class G>
auto weight_gradient(const ConvolutionCall& call, const ConvolutionOptions& options, const Shape& w, const Variable<C, X>& x,
                     const Variable<C, G>& g) {
  return binary(
      x, g, [=](const auto& a, const auto& h) { return weight_gradient<kind, W>(call, options, w, a, h); },
      [=, shape = x.shape()](const auto&, const auto& h, const auto&, const auto& u) {
        return image_gradient<kind, bottom_t<X>>(call, options, shape, u, h);
      },
      [=](const auto& a, const auto&, const auto&, const auto& u) { return convolution<kind>(call, options, a, u); });
}

template <ConvolutionKind kind, class C, class X, class W>
requires(Nested<X> || Nested<W>) auto convolution(const ConvolutionCall& call, const ConvolutionOptions& options,
                                                  const Variable<C, X>& x, const Variable<C, W>& w) {
  if constexpr (!kind_fits<kind, bottom_t<X>, bottom_t<W>>) return refused_convolution<kind, bottom_t<X>, bottom_t<W>>();
  else
    return binary(
        x, w, [=](const auto& a, const auto& b) { return convolution<kind>(call, options, a, b); },
        [=](const auto& a, const auto& b, const auto&, const auto& g) {
          return image_gradient<kind, bottom_t<X>>(call, options, a.shape(), b, g);
        },
        [=](const auto& a, const auto& b, const auto&, const auto& g) {
          return weight_gradient<kind, bottom_t<W>>(call, options, b.shape(), a, g);
        });
}
template <ConvolutionKind kind, class C, class D, class X, class... R>
auto convolution(const ConvolutionCall& call, const ConvolutionOptions& options, const Variable<C, Variable<D, X>>& x,
                 const Parameter<R...>& w) {
  return convolution<kind>(call, options, x, beside(x, w));
}
// y plus a number for each channel, dim 1 of `dims` + 2.
template <class Y, class B>
auto plus_channel_bias(std::size_t dims, const Y& y, const B& bias) {
  if (dims == 1) return y + unflatten<0>(bias, 1);
  if (dims == 2) return y + unflatten<0>(bias, 1, 1);
  return y + unflatten<0>(bias, 1, 1, 1);
}
template <ConvolutionKind kind, class C, class D, class X, class... R, class... S>
auto convolution(const ConvolutionCall& call, const ConvolutionOptions& options, const Variable<C, Variable<D, X>>& x,
                 const Parameter<R...>& w, const Parameter<S...>& bias) {
  const auto weights = beside(x, w);
  const auto y = convolution<kind>(call, options, x, weights);
  if constexpr (is_refused<std::remove_const_t<decltype(y)>>) {
    return y;
  } else {
    const auto added = beside(y, bias);
    const auto& value = bottom_of(y);
    const auto& numbers = bottom_of(added);
    using Y = std::remove_cvref_t<decltype(value)>;
    using B = std::remove_cvref_t<decltype(numbers)>;
    if constexpr (!RowRules<Y, B>::bias) {
      refuse_row<Y, B, false>();
      return AlreadyRefused();
    } else {
      require_channel_bias(call, bottom_of(x), bottom_of(weights), numbers, y.shape()[1]);
      return plus_channel_bias(call.dims, y, added);
    }
  }
}

}  // namespace weft::detail
