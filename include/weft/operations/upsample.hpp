// SPDX-License-Identifier: Apache-2.0
#pragma once
// Placed images [samples, channels, ...] of one to three dims enlarged: by elements beside each other (upsample), or by channels
// that become elements (pixel_shuffle). An axis may cut samples or channels; domain axes may cut the images of Variables, whose
// linear enlargement brings a row of each neighbour (operations/cut_passes.hpp).
//
//   auto y = upsample(x, {.factor = 2, .mode = UpsampleMode::linear});   // [samples, channels, 2 height, 2 width]

#include <cstddef>
#include <vector>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/upsample.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/cut_passes.hpp>
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
/// The lines of linear enlargement.
struct EnlargedLines {
  using Shape = kernels::UpsampleShape;
  static constexpr std::size_t outputs(const Shape& s, std::size_t d) { return s.out_extent(d); }
  static RowRange reads(const Shape& s, std::size_t d, std::size_t output) {
    const kernels::detail::UpsampleSource source(s, d, output);
    return {source.first, source.second + 1 - source.first};
  }
  static constexpr void narrow(Shape& s, std::size_t d, const RowRange& rows, const RowRange& outputs) {
    s.whole[d] = s.all(d);
    s.first[d] += rows.first, s.extents[d] = rows.count;
    s.out_first[d] += outputs.first, s.outs[d] = outputs.count;
  }
  static constexpr void take(Shape& s, std::size_t samples, std::size_t channels) { s.planes = samples * channels; }
};
template <class T>
struct Enlarging {
  kernels::UpsampleShape s;
  template <class Exec>
  void forward(Device<Exec>& device, const T* x, T* y) const {
    kernels::upsample<T>(device, s, x, y);
  }
  template <class Exec>
  void input_gradient(Device<Exec>& device, T* dx, const T* g) const {
    kernels::upsample_backward<T>(device, s, g, dx);
  }
};
/// The enlargement of images that domain axes cut, of a piece with its halos, and these axes.
struct CutEnlargement {
  std::vector<CutAxis> axes;
  kernels::UpsampleShape s;
  template <class C, class X>
  CutEnlargement(const UpsampleOptions& options, const Variable<C, X>& x) {
    const bool linear = options.mode == UpsampleMode::linear;
    const CutSides sides = cut_sides<3>(
        "upsample",
        [linear](const CutDim&, const Communicator& comm, std::size_t factor, const ConvolutionOptions&) {
          const std::size_t reach = linear && factor > 1;
          return CutPlan{.rows = HaloRows(comm, {reach, reach})};
        },
        options.factor, {}, x);
    axes = sides.axes;
    s = upsample_shape("upsample", sides.around, options);
    for (const CutAxis& axis : axes) {
      const std::size_t d = axis.dim + kernels::ConvolutionShape::most_dims - x.shape().rank();
      s.out_first[d] = axis.rows.before * s.factor[d], s.outs[d] = x.shape()[axis.dim] * s.factor[d];
    }
  }
};
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
    const X y(x.value().device(), detail::enlarged(x.shape(), detail::upsample_shape("upsample", x.value(), options)));
    const detail::CutEnlargement cut(options, x);
    return detail::cut_outputs<detail::EnlargedLines>(detail::Enlarging<typename X::value_type>{cut.s}, cut.axes, x, y);
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
