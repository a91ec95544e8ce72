// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/convolution_options.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <algorithm>

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/operations/convolution_options.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE std::string extents_text(const std::size_t* extents, std::size_t dims) {
  std::string out;
  for (std::size_t dim = 0; dim < dims; ++dim) append_to(out, {dim ? " x " : "", extents[dim]});
  return out;
}

/// One convolution's operands and options, while its shape is made.
class ConvolutionShaper {
 public:
  ConvolutionShaper(const ConvolutionCall& call, NamedOperand images, NamedOperand weights, const ConvolutionOptions& options)
      : call_(call), images_(images), weights_(weights), options_(options) {}

  WEFT_INLINE kernels::ConvolutionShape make() const;

 private:
  bool is(ConvolutionKind kind) const { return call_.kind == kind; }
  WEFT_INLINE std::string where() const;
  WEFT_INLINE std::string window_text(const kernels::ConvolutionShape& s) const;
  WEFT_INLINE void require_dims() const;
  WEFT_INLINE void take_channels(kernels::ConvolutionShape& s) const;
  WEFT_INLINE void take_window(kernels::ConvolutionShape& s) const;
  WEFT_INLINE void require_fit(const kernels::ConvolutionShape& s) const;
  WEFT_INLINE void transpose(kernels::ConvolutionShape& s) const;

  const ConvolutionCall& call_;
  NamedOperand images_, weights_;
  const ConvolutionOptions& options_;
};

WEFT_INLINE std::string ConvolutionShaper::where() const { return call_text(call_.name, {images_, weights_}); }

WEFT_INLINE std::string ConvolutionShaper::window_text(const kernels::ConvolutionShape& s) const {
  const auto option = [&](const std::size_t* numbers) {  // one number if all are equal
    const bool equal = std::all_of(numbers, numbers + s.dims, [&](std::size_t number) { return number == numbers[0]; });
    return extents_text(numbers, equal ? 1 : s.dims);
  };
  const std::size_t first = s.most_dims - s.dims;
  std::string out = "a kernel of " + extents_text(s.kernel + first, s.dims) + " with stride " + option(s.stride + first) +
                    " and padding " + option(s.before + first);
  if (!std::equal(s.before, s.before + s.most_dims, s.after)) out += " (behind the last: " + option(s.after + first) + ")";
  if (option(s.dilation + first) != "1") out += ", dilation " + option(s.dilation + first);
  return out;
}

WEFT_INLINE void ConvolutionShaper::require_dims() const {
  constexpr const char* of_kernels[] = {"kernel width", "kernel height, kernel width",
                                        "kernel depth, kernel height, kernel width"};
  if (images_.shape().rank() != call_.dims + 2 || weights_.shape().rank() != call_.dims + 2)
    throw_error<ShapeError>({where(), ": expected [samples, channels, ", image_dims[call_.dims - 1], "] and [",
                             is(ConvolutionKind::transposed) ? "in, out, " : "out, in, ", of_kernels[call_.dims - 1], "]"});
  for (const PerDim* numbers :
       {&options_.stride, &options_.padding, &options_.dilation, &options_.padding_after, &options_.output_padding})
    if (!numbers->fits(call_.dims))
      throw_error<ShapeError>({where(), ": an option of ", numbers->count(), " numbers for images of ", call_.dims,
                               " dims: give one for each dim, or one for all"});
}

WEFT_INLINE void ConvolutionShaper::take_channels(kernels::ConvolutionShape& s) const {
  const std::size_t channels = images_.shape()[1], outer = weights_.shape()[0], inner = weights_.shape()[1];
  const bool depthwise = is(ConvolutionKind::depthwise), transposed = is(ConvolutionKind::transposed);
  if (depthwise && options_.groups != 1)
    throw_error<ShapeError>({where(), ": groups(", options_.groups, "), and each channel is a group: leave them out"});
  s.groups = depthwise ? std::max<std::size_t>(1, channels) : options_.groups;
  if (s.groups == 0 || (!depthwise && (channels % s.groups != 0 || outer % s.groups != 0)))
    throw_error<ShapeError>(
        {where(), ": ", channels, " channels and weights of ", outer, " are not groups(", s.groups, ") of equal size"});
  const std::size_t taken = transposed ? outer : depthwise ? channels * inner : inner * s.groups;
  if (taken != channels)
    throw_error<ShapeError>({where(), ": ", channels, " channels, and the weights take ", depthwise ? inner : taken,
                             depthwise ? ", where depthwise ones take 1" : ""});
  if (depthwise && outer != channels)
    throw_error<ShapeError>({where(), ": ", channels, " channels, and the weights are of ", outer});
  s.in = transposed ? inner * s.groups : channels;
  s.out = outer;
}

WEFT_INLINE void ConvolutionShaper::take_window(kernels::ConvolutionShape& s) const {
  for (std::size_t dim = 0; dim < s.dims; ++dim) {
    const std::size_t d = s.most_dims - s.dims + dim;
    s.extents[d] = images_.shape()[dim + 2];
    s.kernel[d] = weights_.shape()[dim + 2];
    s.stride[d] = options_.stride[dim];
    s.dilation[d] = options_.dilation[dim];
    s.before[d] = options_.padding[dim];
    s.after[d] = (options_.padding_after.count() == 0 ? options_.padding : options_.padding_after)[dim];
  }
}

WEFT_INLINE void ConvolutionShaper::require_fit(const kernels::ConvolutionShape& s) const {
  constexpr std::size_t most = std::size_t(1) << 31;  // so that nothing below wraps
  bool fits = true, copies = true;
  for (std::size_t d = 0; d < s.most_dims; ++d) {
    const std::size_t more = std::max(s.before[d], s.after[d]);
    fits = fits && s.kernel[d] != 0 && s.stride[d] != 0 && s.dilation[d] != 0;
    for (const std::size_t number : {s.kernel[d], s.stride[d], s.dilation[d], more, s.extents[d]}) fits = fits && number < most;
    fits = fits && s.padded(d) >= s.reach(d);
    copies = copies && (more == 0 || (s.extents[d] != 0 && (s.mode != PaddingMode::reflect || more < s.extents[d])));
  }
  const std::string image = extents_text(s.extents + (s.most_dims - s.dims), s.dims);
  if (!fits) throw_error<ShapeError>({where(), ": ", window_text(s), " does not fit into an image of ", image});
  if (s.mode != PaddingMode::zeros && !copies)
    throw_error<ShapeError>({where(), ": the padding of ", window_text(s), " has no elements to copy in an image of ", image,
                             "; PaddingMode::reflect takes less than the extent"});
}

WEFT_INLINE void ConvolutionShaper::transpose(kernels::ConvolutionShape& s) const {
  if (s.mode != PaddingMode::zeros) throw_error<ShapeError>({where(), ": its padding leaves outputs out: the mode is zeros"});
  for (std::size_t dim = 0; dim < s.dims; ++dim) {
    const std::size_t d = s.most_dims - s.dims + dim, given = s.extents[d], more = options_.output_padding[dim],
                      whole = given == 0 ? 0 : (given - 1) * s.stride[d] + s.reach(d) + more, less = s.before[d] + s.after[d];
    if (whole <= less || more >= s.stride[d])
      throw_error<ShapeError>({where(), ": ", window_text(s), " and output_padding ", more, " give no image from ", given,
                               " elements; output_padding is less than the stride"});
    s.extents[d] = whole - less;
  }
}

WEFT_INLINE kernels::ConvolutionShape ConvolutionShaper::make() const {
  require_dims();
  kernels::ConvolutionShape s;
  s.samples = images_.shape()[0];
  s.dims = call_.dims;
  s.mode = options_.mode;
  take_channels(s);
  take_window(s);
  if (is(ConvolutionKind::transposed)) transpose(s);
  require_fit(s);
  return s;
}

WEFT_OUT_OF_LINE WEFT_INLINE kernels::ConvolutionShape convolution_shape(const ConvolutionCall& call, NamedOperand images,
                                                                         NamedOperand weights,
                                                                         const ConvolutionOptions& options) {
  return ConvolutionShaper(call, images, weights, options).make();
}

WEFT_INLINE Shape convolved_shape(const kernels::ConvolutionShape& s, ConvolutionKind kind, const Shape& images,
                                  const Shape& weights) {
  const bool transposed = kind == ConvolutionKind::transposed;
  Shape shape = Shape::of_rank(s.dims + 2);
  shape[0] = s.samples;
  shape[1] = transposed ? s.in : s.out;
  for (std::size_t dim = 0; dim < s.dims; ++dim) {
    const std::size_t d = s.most_dims - s.dims + dim;
    shape[dim + 2] = transposed ? s.extents[d] : s.out_extent(d);
  }
  return shape.set_sharding(0, images.sharding(0)).set_sharding(1, weights.sharding(transposed ? 1 : 0));
}

}  // namespace weft::detail
