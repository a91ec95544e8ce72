// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions of placed images of one to three dims. dp cuts the samples; tp cuts the output channels (as a column-parallel
// product: x Replicated, w Shard<tp, 0>) or the input channels (as a row-parallel one, whose result is Partial). A cut of an
// image's dims would need neighbours' elements and is refused.
//
//   auto y = conv2d(x, w, {.stride = 2, .padding = 1});   // [samples, in, h, w] by [out, in, kh, kw] -> [samples, out, h', w']
//   auto z = conv3d(f, k, bias, {.padding = 1, .mode = PaddingMode::periodic});

#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/convolution.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/convolution_rules.hpp>
#include <weft/operations/products.hpp>
#include <weft/operations/rules.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace operations {

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

}  // namespace operations

namespace detail {

template <ConvolutionKind kind>
inline constexpr bool is_depthwise = kind == ConvolutionKind::depthwise;

// Groups are counted over all channels, so a rank with some of them does not know which groups it has.
template <class X, class W>
void require_whole_groups(const ConvolutionCall& call, const X& x, const W& w, const ConvolutionOptions& options) {
  if constexpr (cut_between<X, 1, 1> || cut_between<W, 0, 1>)
    if (options.groups != 1)
      throw_error<ShapeError>({call_text(call.name, {x, w}), ": groups(", options.groups,
                               ") of channels that an axis cuts: gather them first; depthwise_conv1d to 3d take cut channels"});
}

// A bias has one number for each channel of y, [channels].
inline void require_channel_bias(const ConvolutionCall& call, NamedOperand x, NamedOperand w, NamedOperand bias,
                                 std::size_t channels) {
  if (bias.shape().size() != channels || bias.shape().rank() != 1)
    throw_error<ShapeError>({call_text(call.name, {x, w, bias}), ": ", channels, " channels out and a bias of ",
                             bias.shape().rank() == 1 ? std::to_string(bias.shape().size()) : bias.shape().text()});
}

/// The kernels of a convolution of images `s` by weights w, and a bias of channels or null.
template <ConvolutionKind kind, class T>
struct ConvolutionKernels {
  kernels::ConvolutionShape s;
  const T *w, *bias;
  static constexpr bool transposed = kind == ConvolutionKind::transposed;
  template <class Exec>
  void forward(Device<Exec>& device, const T* x, T* y) const {
    if constexpr (transposed) kernels::convolution_transposed<T>(device, s, x, w, bias, y);
    else kernels::convolution_forward<T>(device, s, x, w, bias, y);
  }
  template <class Exec>
  void input_gradient(Device<Exec>& device, T* dx, const T* g) const {
    if constexpr (transposed) kernels::convolution_forward<T>(device, s, g, w, static_cast<const T*>(nullptr), dx);
    else kernels::convolution_backward_input<T>(device, s, g, w, dx);
  }
  template <class Exec>
  void weight_gradient(Device<Exec>& device, const T* x, const T* g, accumulate_t<T>* dw) const {
    if constexpr (transposed) kernels::convolution_backward_weight<T>(device, s, g, x, dw);
    else kernels::convolution_backward_weight<T>(device, s, x, g, dw);
  }
};
// The shape of the kernels, and the three passes. Other options than ConvolutionOptions have others (cut_convolution.hpp).
inline kernels::ConvolutionShape shape_of(const ConvolutionOptions& options, const ConvolutionCall& call, NamedOperand images,
                                          NamedOperand weights) {
  return convolution_shape(call, images, weights, options);
}
template <ConvolutionKind kind, class X, class W, class Y>
void forward_pass(const ConvolutionOptions&, const kernels::ConvolutionShape& s, const X& x, const W& w,
                  const typename X::value_type* bias, const Y& y) {
  ConvolutionKernels<kind, typename X::value_type>{s, w.data(), bias}.forward(x.device(), x.data(), y.data());
}
template <ConvolutionKind kind, class G, class W, class X>
void input_gradient_pass(const ConvolutionOptions&, const kernels::ConvolutionShape& s, const G& g, const W& w, const X& dx) {
  ConvolutionKernels<kind, typename G::value_type>{s, w.data(), nullptr}.input_gradient(g.device(), dx.data(), g.data());
}
template <ConvolutionKind kind, class X, class G>
void weight_gradient_pass(const ConvolutionOptions&, const kernels::ConvolutionShape& s, const X& x, const G& g,
                          accumulate_t<typename X::value_type>* dw) {
  ConvolutionKernels<kind, typename X::value_type>{s, nullptr, nullptr}.weight_gradient(x.device(), x.data(), g.data(), dw);
}

template <ConvolutionKind kind, class X, class W, class B, class Options>
auto convolve(const ConvolutionCall& call, const X& x, const W& w, const B* bias, const Options& options) {
  constexpr bool transposed = kind == ConvolutionKind::transposed;
  using Rule = Convolved<is_depthwise<kind>, X, W, 0, transposed ? 1 : 0>;
  require_whole_groups(call, x, w, options);
  const kernels::ConvolutionShape s = shape_of(options, call, x, w);
  typename Rule::type y(x.device(), convolved_shape(s, kind, x.shape(), w.shape()));
  if constexpr (Rule::fits) {
    using T = typename X::value_type;
    const T* added = nullptr;
    if constexpr (!std::is_same_v<B, Nothing>) {
      if constexpr (!RowRules<typename Rule::type, B>::bias) refuse_row<typename Rule::type, B, false>();
      else {
        require_channel_bias(call, x, w, *bias, y.shape()[1]);
        added = bias->data();
      }
    }
    forward_pass<kind>(options, s, x, w, added, y);
  }
  return y;
}
template <ConvolutionKind kind, class X, class W, class G, class Options>
auto convolve_input_gradient(const ConvolutionCall& call, const Shape& x, const W& w, const G& g, const Options& options) {
  constexpr bool transposed = kind == ConvolutionKind::transposed;
  using Rule = Convolved<is_depthwise<kind>, G, W, 0, transposed ? 0 : 1>;
  const kernels::ConvolutionShape s = shape_of(options, call, x, w);
  gradient_t<X> dx(g.device(), x);
  if constexpr (Rule::fits) {
    static_assert(std::is_same_v<typename Rule::type, gradient_t<X>>);
    input_gradient_pass<kind>(options, s, g, w, dx);
  }
  return dx;
}
// In elements of type S: that of x, or accumulate_t of it for a parameter, which adds it up so.
template <ConvolutionKind kind, class S, class X, class G, class Options>
auto convolve_weight_gradient(const ConvolutionCall& call, const X& x, const Shape& w, const G& g, const Options& options) {
  constexpr bool transposed = kind == ConvolutionKind::transposed;
  using T = typename X::value_type;
  // dw [out, in] of the channels of g and of x; of a transposed one, [in, out].
  using First = std::conditional_t<transposed, X, G>;
  using Rule = Convolved<is_depthwise<kind>, First, std::conditional_t<transposed, G, X>, 1, 1>;
  const kernels::ConvolutionShape s = shape_of(options, call, x, w);
  with_scalar_t<typename Rule::type, S> dw(x.device(), w);
  if constexpr (Rule::fits) {
    const auto pass = [&](accumulate_t<T>* sums) { weight_gradient_pass<kind>(options, s, x, g, sums); };
    if constexpr (std::is_same_v<S, accumulate_t<T>>) {
      pass(dw.data());
    } else {
      const Tensor<accumulate_t<T>, typename X::execution_space> sums(x.device(), w);
      pass(sums.data());
      kernels::cast<accumulate_t<T>, T>(x.device(), sums.size(), sums.data(), dw.data());
    }
  }
  return dw;
}

// The operands of a convolution: tensors, or a Variable and its weights, and a bias beside a Parameter.
template <class X, class... W>
inline constexpr bool convolves = AnyTensor<X> && (AnyTensor<W> && ...);
template <class C, class X, class W>
inline constexpr bool convolves<Variable<C, X>, Variable<C, W>> = true;
template <class C, class X, class... R>
inline constexpr bool convolves<Variable<C, X>, Parameter<R...>> = true;
template <class C, class X, class... R, class... S>
inline constexpr bool convolves<Variable<C, X>, Parameter<R...>, Parameter<S...>> = true;
template <class X, class... W>
concept Convolves = convolves<X, std::remove_cvref_t<W>...>;

template <ConvolutionKind kind, class X, class W>
inline constexpr bool kind_fits = convolution_fits<is_depthwise<kind>, X, W, 0, kind == ConvolutionKind::transposed ? 1 : 0>;
template <ConvolutionKind kind, class X, class W>
using kind_result_t = typename Convolved<is_depthwise<kind>, X, W, 0, kind == ConvolutionKind::transposed ? 1 : 0>::type;

template <ConvolutionKind kind, class Options, AnyTensor X, AnyTensor W>
auto convolution(const ConvolutionCall& call, const Options& options, const X& x, const W& w) {
  return convolve<kind>(call, x, w, static_cast<const Nothing*>(nullptr), options);
}
template <ConvolutionKind kind, class Options, AnyTensor X, AnyTensor W, AnyTensor B>
auto convolution(const ConvolutionCall& call, const Options& options, const X& x, const W& w, const B& bias) {
  return convolve<kind>(call, x, w, &bias, options);
}
template <ConvolutionKind kind, class Options, class C, class X, class W>
auto convolution(const ConvolutionCall& call, const Options& options, const Variable<C, X>& x, const Variable<C, W>& w) {
  if constexpr (!kind_fits<kind, X, W>) return refused_convolution<kind, X, W>();
  else
    return record(
        x, convolution<kind>(call, options, x.value(), w.value()),
        from(x, [call, shape = x.shape(), w = w.value(), options](
                    const auto&, const auto& g) { return convolve_input_gradient<kind, X>(call, shape, w, g, options); }),
        from(w, [call, x = x.value(), shape = w.shape(), options](const auto&, const auto& g) {
          return convolve_weight_gradient<kind, typename W::value_type>(call, x, shape, g, options);
        }));
}
// Records a convolution by a parameter of the shape `weights`. `more`: the steps of backward of further operands.
template <ConvolutionKind kind, class Y, class C, class X, class... R, class Options, class... More>
auto record_convolution(const ConvolutionCall& call, Y y, const Variable<C, X>& x, const Parameter<R...>& w, const Shape& weights,
                        const Options& options, More... more) {
  return record(x, std::move(y),
                from(x,
                     [call, w, shape = x.shape(), options](const auto&, const auto& g) {
                       return convolve_input_gradient<kind, X>(call, shape, w.template for_operand_type<X>(g.device()), g,
                                                               options);
                     }),
                from(w,
                     [call, x = x.value(), weights, options](const auto& context, auto& to, const auto& g) {
                       to.accumulate(context, convolve_weight_gradient<kind, number_t<X>>(call, x, weights, g, options));
                     }),
                std::move(more)...);
}
template <ConvolutionKind kind, class Options, class C, class X, class... R>
auto convolution(const ConvolutionCall& call, const Options& options, const Variable<C, X>& x, const Parameter<R...>& w) {
  const auto weights = w.for_operand(x.value());
  using W = std::remove_const_t<decltype(weights)>;
  if constexpr (!kind_fits<kind, X, W>) return refused_convolution<kind, X, W>();
  else
    return record_convolution<kind>(call, convolution<kind>(call, options, x.value(), weights), x, w, weights.shape(), options);
}
template <ConvolutionKind kind, class Options, class C, class X, class... R, class... S>
auto convolution(const ConvolutionCall& call, const Options& options, const Variable<C, X>& x, const Parameter<R...>& w,
                 const Parameter<S...>& bias) {
  const auto weights = w.for_operand(x.value());
  using W = std::remove_const_t<decltype(weights)>;
  if constexpr (!kind_fits<kind, X, W>) {
    return refused_convolution<kind, X, W>();
  } else {
    using Y = kind_result_t<kind, X, W>;
    const auto added = bias.template for_operand_type<Y>(x.value().device());
    auto y = convolution<kind>(call, options, x.value(), weights, added);
    if constexpr (!RowRules<Y, std::remove_const_t<decltype(added)>>::bias) return AlreadyRefused();
    else
      return record_convolution<kind>(
          call, std::move(y), x, w, weights.shape(), options,
          from(bias, [](const auto& context, auto& to, const auto& g) { to.accumulate(context, operations::sum_channels(g)); }));
  }
}

template <class V>
inline constexpr bool is_parameter_object = false;
template <class... R>
inline constexpr bool is_parameter_object<Parameter<R...>> = true;
/// The convolution of these operands, tensors or Variables. Refuses temporary parameters, which no longer exist in backward.
template <ConvolutionKind kind, class Options, class X, class... W>
auto convolution_of(const char* name, std::size_t dims, const Options& options, const X& x, W&&... w) {
  if constexpr (((is_parameter_object<std::remove_cvref_t<W>> && !std::is_lvalue_reference_v<W>) || ...))
    return refused_temporary<typename X::tensor_type>();
  else return convolution<kind>(ConvolutionCall{name, dims, kind}, options, x, w...);
}

}  // namespace detail

namespace operations {

// Operands of all of these: tensors, Variables, or a Variable and Parameters. Placements: rules.hpp.

/// x [samples, in, height, width] by w [out, in / groups, kernel height, kernel width] -> [samples, out, height', width'], plus
/// bias [out], placed as the result's channels: Shard<tp, 0> beside w's. height' = (height + paddings - dilation (kernel height -
/// 1) - 1) / stride + 1. Throws ShapeError for extents or options that do not fit, and for groups of channels that an axis cuts.
/// Gradients: conv2d_input_gradient(x, w, g, options), conv2d_weight_gradient(x, w, g, options), sum_channels(g).
template <class X, class W>
requires(detail::Convolves<X, W>) auto conv2d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::plain>("conv2d", 2, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto conv2d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::plain>("conv2d", 2, options, x, std::forward<W>(w),
                                                                std::forward<B>(bias));
}
/// The same of x [samples, in, width] by w [out, in / groups, kernel width].
template <class X, class W>
requires(detail::Convolves<X, W>) auto conv1d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::plain>("conv1d", 1, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto conv1d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::plain>("conv1d", 1, options, x, std::forward<W>(w),
                                                                std::forward<B>(bias));
}
/// The same of x [samples, in, depth, height, width] by w [out, in / groups, kernel depth, kernel height, kernel width].
template <class X, class W>
requires(detail::Convolves<X, W>) auto conv3d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::plain>("conv3d", 3, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto conv3d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::plain>("conv3d", 3, options, x, std::forward<W>(w),
                                                                std::forward<B>(bias));
}
/// Each channel of x by its own kernel, w [channels, 1, kernel...], plus bias [channels]. tp may cut the channels of all of them.
template <class X, class W>
requires(detail::Convolves<X, W>) auto depthwise_conv2d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::depthwise>("depthwise_conv2d", 2, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto depthwise_conv2d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::depthwise>("depthwise_conv2d", 2, options, x, std::forward<W>(w),
                                                                    std::forward<B>(bias));
}
/// depthwise_conv2d of x [samples, channels, width] by w [channels, 1, kernel width].
template <class X, class W>
requires(detail::Convolves<X, W>) auto depthwise_conv1d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::depthwise>("depthwise_conv1d", 1, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto depthwise_conv1d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::depthwise>("depthwise_conv1d", 1, options, x, std::forward<W>(w),
                                                                    std::forward<B>(bias));
}
/// depthwise_conv2d of x [samples, channels, depth, height, width] by w [channels, 1, kernel depth, kernel height, kernel width].
template <class X, class W>
requires(detail::Convolves<X, W>) auto depthwise_conv3d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::depthwise>("depthwise_conv3d", 3, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto depthwise_conv3d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::depthwise>("depthwise_conv3d", 3, options, x, std::forward<W>(w),
                                                                    std::forward<B>(bias));
}
/// x [samples, in, height, width] by w [in, out / groups, kernel...] -> [samples, out, height', width'], plus bias [out]: the
/// gradient of a convolution of the result, as torch.nn.functional.conv_transpose2d. height' = (height - 1) stride - paddings +
/// dilation (kernel height - 1) + output_padding + 1. tp cuts the output channels, w Shard<tp, 1>, or the input channels, w
/// Shard<tp, 0>.
template <class X, class W>
requires(detail::Convolves<X, W>) auto conv_transpose2d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::transposed>("conv_transpose2d", 2, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto conv_transpose2d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::transposed>("conv_transpose2d", 2, options, x, std::forward<W>(w),
                                                                     std::forward<B>(bias));
}
/// conv_transpose2d of x [samples, in, width] by w [in, out / groups, kernel width].
template <class X, class W>
requires(detail::Convolves<X, W>) auto conv_transpose1d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::transposed>("conv_transpose1d", 1, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto conv_transpose1d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::transposed>("conv_transpose1d", 1, options, x, std::forward<W>(w),
                                                                     std::forward<B>(bias));
}
/// conv_transpose2d of x [samples, in, depth, height, width] by w [in, out / groups, kernel depth, kernel height, kernel width].
template <class X, class W>
requires(detail::Convolves<X, W>) auto conv_transpose3d(const X& x, W&& w, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::transposed>("conv_transpose3d", 3, options, x, std::forward<W>(w));
}
template <class X, class W, class B>
requires(detail::Convolves<X, W, B>) auto conv_transpose3d(const X& x, W&& w, B&& bias, const ConvolutionOptions& options = {}) {
  return detail::convolution_of<detail::ConvolutionKind::transposed>("conv_transpose3d", 3, options, x, std::forward<W>(w),
                                                                     std::forward<B>(bias));
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto conv2d_input_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  constexpr auto kind = detail::ConvolutionKind::plain;
  return detail::convolve_input_gradient<kind, X>({"conv2d_input_gradient", 2, kind}, x.shape(), w, g, options);
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto conv2d_weight_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  constexpr auto kind = detail::ConvolutionKind::plain;
  return detail::convolve_weight_gradient<kind, typename W::value_type>({"conv2d_weight_gradient", 2, kind}, x, w.shape(), g,
                                                                        options);
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto depthwise_conv2d_input_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  constexpr auto kind = detail::ConvolutionKind::depthwise;
  return detail::convolve_input_gradient<kind, X>({"depthwise_conv2d_input_gradient", 2, kind}, x.shape(), w, g, options);
}
template <AnyTensor X, AnyTensor W, AnyTensor G>
auto depthwise_conv2d_weight_gradient(const X& x, const W& w, const G& g, const ConvolutionOptions& options = {}) {
  constexpr auto kind = detail::ConvolutionKind::depthwise;
  return detail::convolve_weight_gradient<kind, typename W::value_type>({"depthwise_conv2d_weight_gradient", 2, kind}, x,
                                                                        w.shape(), g, options);
}

}  // namespace operations

}  // namespace weft
