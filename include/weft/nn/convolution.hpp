// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions of images of one to three dims as layers, with PyTorch's parameters, options and initial values.
//
//   Conv3d<> conv(context / "conv", in, out, 3, {.padding = 1, .mode = PaddingMode::periodic});   // in a Module's constructor
//   const auto y = conv(x);   // [samples, in, depth, height, width] -> [samples, out, ...]

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>

#include <weft/autograd/layer_arguments.hpp>
#include <weft/autograd/module.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/engine/initial_values.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/exchanged_window.hpp>

namespace weft {

/// The options of Conv1d to ConvTranspose3d: those of ConvolutionOptions, and whether there is a bias.
struct ConvolutionLayerOptions {
  PerDim stride = 1, padding = 0, dilation = 1;
  std::size_t groups = 1;
  bool bias = true;
  PaddingMode mode = PaddingMode::zeros;
  PerDim padding_after = {}, output_padding = {};
  std::optional<InitialValues> initial_weight = {}, initial_bias = {};  ///< unless set, uniform in ±1/√(inputs of an output)
};

namespace detail {

// The rule of the weights of channels that P cuts: output channels as of a Column layer, input channels as of a Row layer.
template <ConvolutionKind kind, class P>
struct ConvolutionWeightRule {
  static_assert(shard_dim<P> == 0 || (shard_dim<P> == 1 && kind == ConvolutionKind::plain),
                "weft: the rule of a convolution is that of its output channels, Conv2d<Shard<tp, 0>>, or of the input channels "
                "of one that is not transposed, Conv2d<Shard<tp, 1>>: leave it out if they are whole");
  using type = Shard<typename P::axis, kind == ConvolutionKind::transposed ? 1 : shard_dim<P>>;
};

template <int Dims, ConvolutionKind kind, Placement... Rules>
class ConvolutionLayer : public Module<ConvolutionLayer<Dims, kind, Rules...>> {
  static constexpr bool transposed = kind == ConvolutionKind::transposed, cuts_inputs = ((shard_dim<Rules> == 1) || ...);
  static constexpr const char* name = transposed  ? (Dims == 1   ? "conv_transpose1d"
                                                     : Dims == 2 ? "conv_transpose2d"
                                                                 : "conv_transpose3d")
                                      : Dims == 1 ? "conv1d"
                                      : Dims == 2 ? "conv2d"
                                                  : "conv3d";

 public:
  /// Refuses other arguments.
  template <class... A>
  requires WrongArguments<LayerArguments<3, std::size_t, std::size_t, PerDim, ConvolutionLayerOptions>, A...>
  explicit ConvolutionLayer(const A&...) : ConvolutionLayer(refused_layer<ConvolutionLayer>()) {
    static_assert(sizeof...(A) > 99,
                  "weft: a convolution takes the context with its name, the channels in and out, and the kernel, in the "
                  "constructor of your Module: `Conv2d<> conv;`, conv(context / \"conv\", in, out, 3), and options with their "
                  "names, {.stride = 2, .padding = 1}");
  }
  /// `kernel`: one number for all dims, or one for each. Throws ShapeError unless the groups divide both numbers of channels.
  template <class Context>
  ConvolutionLayer(const Context& context, std::size_t in, std::size_t out, PerDim kernel,
                   const ConvolutionLayerOptions& options = {})
      : ConvolutionLayer(context, weights_shape(in, out, kernel, options.groups), out, options) {}

  auto forward(const auto& x) const {
    using X = typename std::remove_cvref_t<decltype(x)>::tensor_type;
    if constexpr (!Real<typename bottom_t<X>::value_type>) return refused_whole_numbers<X>();
    else if constexpr (cuts_inputs) return convolved(x, weight);
    else return bias ? convolved(x, weight, *bias) : convolved(x, weight);
  }

  Parameter<typename ConvolutionWeightRule<kind, Rules>::type...> weight;
  std::optional<Parameter<Rules...>> bias;

 private:
  template <class Context>
  ConvolutionLayer(const Context& context, const Shape& shape, std::size_t out, const ConvolutionLayerOptions& options)
      : weight(context, "weight", shape, values(options.initial_weight, shape)),
        options_{.stride = options.stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .groups = options.groups,
                 .mode = options.mode,
                 .padding_after = options.padding_after,
                 .output_padding = options.output_padding} {
    std::array<std::size_t, Dims> kernel;
    for (std::size_t dim = 0; dim < Dims; ++dim) kernel[dim] = shape[dim + 2];
    kernel_ = PerDim::of(kernel);
    if (options.bias && cuts_inputs)
      throw_error<UsageError>({name,
                               ": an axis cuts the input channels, so the result is Partial and takes no bias: give the "
                               "option .bias = false, and add a Parameter after to<Invariant<axis>>(y)"});
    if (options.bias) bias.emplace(context, "bias", Shape{out}, values(options.initial_bias, shape));
  }
  auto convolved(const auto& x, const auto&... weights) const {
    if constexpr (cut_in_space<typename std::remove_cvref_t<decltype(x)>::tensor_type>)
      return exchanged_convolution<Dims, kind>(name, kernel_, options_, x, weights...);
    else return convolution_of<kind>(name, Dims, options_, x, weights...);
  }
  static Shape weights_shape(std::size_t in, std::size_t out, const PerDim& kernel, std::size_t groups) {
    if (groups == 0 || in % groups != 0 || out % groups != 0 || !kernel.fits(Dims))
      throw_error<ShapeError>({name, ": channels ", in, " to ", out, " are not groups(", groups,
                               ") of equal size, or the kernel has ", kernel.count(), " numbers for ", Dims, " dims"});
    Shape shape = Shape::of_rank(Dims + 2);
    shape[0] = transposed ? in : out;
    shape[1] = (transposed ? out : in) / groups;
    for (std::size_t dim = 0; dim < Dims; ++dim) shape[dim + 2] = kernel[dim];
    return shape;
  }
  // As PyTorch, which takes dim 1 of the weights for their inputs, transposed ones too.
  static InitialValues values(const std::optional<InitialValues>& given, const Shape& shape) {
    const std::size_t pixels = shape.size() / std::max<std::size_t>(1, shape[0] * shape[1]);
    return given.value_or(uniform(Fan::in)).with_fans(shape[1] * pixels, shape[0] * pixels);
  }

  ConvolutionOptions options_;
  PerDim kernel_;
};

}  // namespace detail

/// A convolution with parameters "weight" [out, in / groups, kernel...] and, unless the option `bias` is false, "bias" [out]. If
/// an axis cuts the output channels, the layer has their rule, Conv2d<Shard<tp, 0>>, and x is Replicated on that axis. If it cuts
/// the input channels, Conv2d<Shard<tp, 1>>, the result is Partial there; the constructor throws UsageError for a bias. Errors,
/// placements and numerics: conv2d (operations/convolution.hpp).
template <Placement... Rules>
using Conv1d = detail::ConvolutionLayer<1, detail::ConvolutionKind::plain, Rules...>;
/// The convolution of images [samples, in, height, width], as Conv1d.
template <Placement... Rules>
using Conv2d = detail::ConvolutionLayer<2, detail::ConvolutionKind::plain, Rules...>;
/// The convolution of volumes [samples, in, depth, height, width], as Conv1d.
template <Placement... Rules>
using Conv3d = detail::ConvolutionLayer<3, detail::ConvolutionKind::plain, Rules...>;
/// The transposed convolution, with "weight" [in, out / groups, kernel...] and "bias" [out].
template <Placement... Rules>
using ConvTranspose1d = detail::ConvolutionLayer<1, detail::ConvolutionKind::transposed, Rules...>;
/// The transposed convolution of images [samples, in, height, width].
template <Placement... Rules>
using ConvTranspose2d = detail::ConvolutionLayer<2, detail::ConvolutionKind::transposed, Rules...>;
/// The transposed convolution of volumes [samples, in, depth, height, width].
template <Placement... Rules>
using ConvTranspose3d = detail::ConvolutionLayer<3, detail::ConvolutionKind::transposed, Rules...>;

}  // namespace weft
