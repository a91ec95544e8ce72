// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of convolutions and pooling in one to three dims, and the extents that they give.
//
//   conv3d(x, w, {.stride = {1, 2, 2}, .padding = 1, .mode = PaddingMode::periodic});

#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>

#include <weft/autograd/variable.hpp>
#include <weft/engine/operand.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/tensor/shape.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

using kernels::PaddingMode;

/// A number for each dim of an image, slowest first, {2, 1}, or one for all of them, 2.
class PerDim {
 public:
  constexpr PerDim() = default;
  template <std::integral N>
  constexpr PerDim(N all) : PerDim({all}) {}
  template <std::integral N>
  constexpr PerDim(std::initializer_list<N> each) : count_(each.size()) {
    std::size_t dim = 0;
    for (const N number : each)
      if (dim < values_.size()) values_[dim++] = static_cast<std::size_t>(number);
  }
  /// A number for each of these dims.
  template <std::size_t dims>
  static constexpr PerDim of(const std::array<std::size_t, dims>& each) {
    PerDim all;
    all.count_ = dims;
    for (std::size_t dim = 0; dim < dims; ++dim) all.values_[dim] = each[dim];
    return all;
  }
  /// How many numbers were given: 0, one for all dims, or one for each.
  constexpr std::size_t count() const { return count_; }
  constexpr bool fits(std::size_t dims) const { return count_ <= 1 || count_ == dims; }
  constexpr std::size_t operator[](std::size_t dim) const { return values_[count_ <= 1 ? 0 : dim]; }
  constexpr bool operator==(const PerDim&) const = default;

 private:
  std::array<std::size_t, kernels::ConvolutionShape::most_dims> values_{};
  std::size_t count_ = 0;
};

/// The options of conv1d to conv3d, as torch.nn.Conv2d's.
struct ConvolutionOptions {
  PerDim stride = 1;    ///< elements from one output to the next; of a transposed convolution, from one input to the next
  PerDim padding = 0;   ///< elements on both sides of each dim
  PerDim dilation = 1;  ///< elements from one of the kernel to the next
  std::size_t groups = 1;
  PaddingMode mode = PaddingMode::zeros;
  PerDim padding_after = {};   ///< elements behind the last one; `padding` unless set
  PerDim output_padding = {};  ///< of a transposed convolution: further outputs behind the last ones, fewer than the stride
};

namespace detail {

// A tensor, or a Variable of a forward.
template <class X>
inline constexpr bool is_image_operand = AnyTensor<X>;
template <class C, class X>
inline constexpr bool is_image_operand<Variable<C, X>> = is_image_operand<X>;
template <class X>
concept ImageOperand = is_image_operand<X>;

enum class ConvolutionKind { plain, depthwise, transposed };

/// A convolution by its name in messages.
struct ConvolutionCall {
  const char* name;
  std::size_t dims;  ///< of an image
  ConvolutionKind kind = ConvolutionKind::plain;
};

/// The kernel's shape for images and weights. A transposed convolution has that of the convolution whose gradient it is: its
/// result is the input there. Throws ShapeError for extents and options that do not fit.
kernels::ConvolutionShape convolution_shape(const ConvolutionCall& call, NamedOperand images, NamedOperand weights,
                                            const ConvolutionOptions& options);
/// The shape of the result.
Shape convolved_shape(const kernels::ConvolutionShape& s, ConvolutionKind kind, const Shape& images, const Shape& weights);
/// The names of one to three dims of an image, for messages.
inline constexpr const char* image_dims[] = {"width", "height, width", "depth, height, width"};
/// "3 x 2", for messages.
std::string extents_text(const std::size_t* extents, std::size_t dims);

}  // namespace detail

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/convolution_options_impl.hpp>
#endif
