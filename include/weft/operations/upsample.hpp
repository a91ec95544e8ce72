// SPDX-License-Identifier: Apache-2.0
#pragma once
// Placed images [samples, channels, ...] of one to three dims enlarged: by elements beside each other (upsample), or by channels
// that become elements (pixel_shuffle). An axis may cut samples or channels; domain axes may cut the images of Variables, whose
// linear enlargement brings a row of each neighbour.
//
//   auto y = upsample(x, {.factor = 2, .mode = UpsampleMode::linear});   // [samples, channels, 2 height, 2 width]

#include <cstddef>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/upsample.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/exchanged_rows.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

using kernels::UpsampleMode;

/// How many times as long each dim becomes: one number for all, or one for each.
struct UpsampleOptions {
  PerDim factor = 2;
  UpsampleMode mode = UpsampleMode::nearest;
};

namespace detail {

template <class X>
constexpr void require_uncut_images() {
  static_assert(!cut_between<X, 2, int(Shape::max_rank) - 1>,
                "weft: upsample needs whole images, but an axis cuts their dims, which are from 2 (height and "
                "width): cut samples or channels, or images of Variables over a domain axis (dx, dy, dz)");
}
/// Throws ShapeError unless x is [samples, channels, ...] of one to three dims and the factors fit.
kernels::UpsampleShape upsample_shape(const char* operation, NamedOperand x, const UpsampleOptions& options);
/// x's shape with each dim of the images `factor` times as long.
Shape enlarged(Shape x, const kernels::UpsampleShape& s);
/// f(images, options) of images with the rows of their neighbours along the first dim that an axis cuts, without the results that
/// are the neighbours'.
template <class V, class F>
auto upsample_pieces(const V& x, const UpsampleOptions& options, F&& f) {
  using P = typename FirstCut<typename V::tensor_type>::type;
  constexpr std::size_t dim = shard_dim<P>;
  upsample_shape("upsample", x.value(), options);
  require_dim("upsample", x.value(), dim);
  const std::size_t factor = options.factor[dim - 2], reach = options.mode == UpsampleMode::linear && factor > 1;
  const HaloRows rows(x.context().comm(typename P::axis()), {reach, reach});
  const auto wide = f(bring_rows<P>({"upsample", P::axis::name}, x, rows), options);
  return drop_rows<P>(wide, rows.before * factor, rows.after * factor);
}
/// Throws ShapeError unless x is [samples, channels, height, width] with channels in groups of factor².
void require_shuffled(NamedOperand x, std::size_t factor);

}  // namespace detail

namespace operations {

/// x [samples, channels, ...] -> the same with each dim of the images `factor` times as long, as torch.nn.functional.interpolate
/// with mode "nearest", or "linear", "bilinear", "trilinear" and align_corners=False. Partial stays Partial. Throws ShapeError
/// for factors that do not fit. Gradient: upsample_gradient(x.shape(), g, options).
template <AnyTensor X>
X upsample(const X& x, const UpsampleOptions& options = {}) {
  detail::require_uncut_images<X>();
  const auto s = detail::upsample_shape("upsample", x, options);
  X y(x.device(), detail::enlarged(x.shape(), s));
  kernels::upsample<typename X::value_type>(x.device(), s, x.data(), y.data());
  return y;
}
template <AnyTensor G>
G upsample_gradient(const Shape& x, const G& g, const UpsampleOptions& options = {}) {
  const auto s = detail::upsample_shape("upsample_gradient", x, options);
  G dx(g.device(), x);
  kernels::upsample_backward<typename G::value_type>(g.device(), s, g.data(), dx.data());
  return dx;
}
/// Domain axes may cut the images of a Variable, in pieces of any extents: the result is cut alike. One exchange of a row with
/// each neighbour for each such axis, none for UpsampleMode::nearest. Throws ShapeError for a piece without a row.
template <class C, class X>
auto upsample(const Variable<C, X>& x, const UpsampleOptions& options = {}) {
  if constexpr (detail::cut_in_space<X>) {
    return detail::upsample_pieces(x, options,
                                   [](const auto& images, const UpsampleOptions& all) { return upsample(images, all); });
  } else {
    detail::refuse_cut_images_inside_grad<X>();
    return detail::linear_pair([options](const auto& value) { return upsample(value, options); },
                               [shape = x.shape(), options](const auto& g) { return upsample_gradient(shape, g, options); }, x);
  }
}

/// x [samples, channels factor², height, width] -> [samples, channels, factor height, factor width]: the channels of an element
/// become a square of elements, as torch.nn.functional.pixel_shuffle (Shi et al., arXiv:1609.05158). Placements are those of
/// unflatten, permute and flatten, of which it consists; an axis that cuts channels has whole squares. Throws ShapeError for
/// channels that do not fit.
template <detail::ImageOperand X>
auto pixel_shuffle(const X& x, std::size_t factor) {
  if constexpr (AnyTensor<X>) detail::require_shuffled(x, factor);
  else detail::require_shuffled(detail::bottom_of(x), factor);
  const auto squares = unflatten<1>(x, factor, factor);                     // [samples, channels, factor, factor, height, width]
  return flatten<2, 3>(flatten<4, 5>(permute<0, 1, 4, 2, 5, 3>(squares)));  // by rows, then columns, of the squares
}

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/upsample_impl.hpp>
#endif
