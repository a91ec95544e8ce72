// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions, also transposed ones, over images that axes cut, with their exchanges hidden (operations/cut_passes.hpp).
//
//   CutConvolution<Strip> cut{options, axes};   // the padding of a plain one is that at the border of the domain
//   convolution_of<kind>("conv2d", 2, cut, images, weights, bias);   // by the passes below

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include <weft/kernels/convolution_shape.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/cut_passes.hpp>
#include <weft/tensor/halo.hpp>

namespace weft::detail {

/// The options of a convolution of a piece with its halos, and copies of the neighbours' rows, which forward keeps here.
template <class Strip>
struct CutConvolution : ConvolutionOptions {
  std::vector<CutAxis> axes;  // in the order of their exchanges
  std::shared_ptr<std::vector<Strips<Strip>>> halos = std::make_shared<std::vector<Strips<Strip>>>();
};

/// The lines of a transposed convolution, whose shape is that of the convolution whose gradient it is: row i is an output there,
/// and `before` counts the outputs that are left out.
struct TransposedWindows {
  using Shape = kernels::ConvolutionShape;
  static constexpr std::size_t outputs(const Shape& s, std::size_t d) { return s.extents[d]; }
  static constexpr RowRange reads(const Shape& s, std::size_t d, std::size_t output) {
    const std::size_t place = output + s.before[d], span = s.reach(d), rows = s.out_extent(d);
    const std::size_t first = std::min(place < span ? 0 : (place - span) / s.stride[d] + 1, rows);
    return {first, std::clamp(place / s.stride[d] + 1, first, rows) - first};
  }
  static constexpr void narrow(Shape& s, std::size_t d, const RowRange& rows, const RowRange& outputs) {
    s.before[d] = s.before[d] + outputs.first - std::min(rows.first * s.stride[d], s.before[d] + outputs.first);
    s.extents[d] = outputs.count;
    const std::size_t end = rows.count == 0 ? 0 : (rows.count - 1) * s.stride[d] + s.reach(d), last = s.before[d] + outputs.count;
    s.after[d] = end > last ? end - last : 0;
  }
  static constexpr void take(Shape& s, std::size_t samples, std::size_t) { s.samples = samples; }
};

template <ConvolutionKind kind, class T, class Exec>
using CutConvolutionPasses = CutPasses<std::conditional_t<kind == ConvolutionKind::transposed, TransposedWindows, Windows>,
                                       ConvolutionKernels<kind, T>, T, Exec>;

template <class Strip>
kernels::ConvolutionShape shape_of(const CutConvolution<Strip>& cut, const ConvolutionCall& call, NamedOperand images,
                                   NamedOperand weights) {
  Shape around = images.shape();
  for (const CutAxis& axis : cut.axes)
    if (axis.dim < around.rank()) around[axis.dim] = axis.rows.around(around[axis.dim]);
  return convolution_shape(call, around, weights, cut);
}
template <ConvolutionKind kind, class T, class Exec, class X, class W, class Y>
void forward_pass(const CutConvolution<Tensor<T, Exec>>& cut, const kernels::ConvolutionShape& s, const X& x, const W& w,
                  const T* bias, const Y& y) {
  CutConvolutionPasses<kind, T, Exec>({s, w.data(), bias}, cut.axes, x.device(), x.shape()).forward(raw(x), *cut.halos, raw(y));
}
template <ConvolutionKind kind, class T, class Exec, class G, class W, class X>
void input_gradient_pass(const CutConvolution<Tensor<T, Exec>>& cut, const kernels::ConvolutionShape& s, const G& g, const W& w,
                         const X& dx) {
  CutConvolutionPasses<kind, T, Exec>({s, w.data(), nullptr}, cut.axes, g.device(), dx.shape()).input_gradient(raw(dx), raw(g));
}
template <ConvolutionKind kind, class T, class Exec, class X, class G>
void weight_gradient_pass(const CutConvolution<Tensor<T, Exec>>& cut, const kernels::ConvolutionShape& s, const X& x, const G& g,
                          accumulate_t<T>* dw) {
  CutConvolutionPasses<kind, T, Exec>({s, nullptr, nullptr}, cut.axes, x.device(), x.shape())
      .weight_gradient(raw(x), *cut.halos, raw(g), s.out * (s.in / s.groups) * s.kernel_pixels(), dw);
}

}  // namespace weft::detail
