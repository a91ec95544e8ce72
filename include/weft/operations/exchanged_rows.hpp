// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations over images that domain axes cut and that bring the rows of the neighbours themselves. For each such axis a plan
// gives the rows that this rank needs around its piece, and the padding that remains for the operation: at the border of the
// domain, and along dims that no axis cuts. CutPasses (operations/cut_passes.hpp) exchange the rows.
//
//   const CutSides sides = cut_sides<2>("max_pool2d", cut_window, kernel, options, x);   // x Shard<dx, 2>
//
// PaddingMode::periodic closes the ring of ranks; other modes pad the pieces at the border of the domain.

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/refused.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/tensor/halo.hpp>

namespace weft::detail {

/// A dim of images [samples, channels, ...] that an axis cuts: dim `at` of the image, of which this rank has `rows`.
struct CutDim {
  HaloCall call;
  std::size_t at, rows;
};
/// The rows that a rank needs of its neighbours, and the padding that the operation adds to them.
struct CutPlan {
  HaloRows rows;
  std::size_t before = 0, after = 0, output_padding = 0;
};
/// The plan of a window: outputs of a piece follow those of the previous one. Throws ShapeError for a window for which they do
/// not, and for pieces, except the last one, of other than multiples of the stride.
CutPlan cut_window(const CutDim& dim, const Communicator& comm, std::size_t kernel, const ConvolutionOptions& options);
/// The plan of a transposed convolution: each rank but the last has `stride` outputs for each row of its piece.
CutPlan cut_transposed(const CutDim& dim, const Communicator& comm, std::size_t kernel, const ConvolutionOptions& options);
/// An axis that cuts dim `dim` of images [samples, channels, ...].
struct CutAxis {
  Communicator comm;
  std::size_t dim;
  HaloRows rows;
};
void require_rows_of_stride(const char* operation, std::string_view axis, NamedOperand x, std::size_t own, std::size_t stride);

/// The same elements as a Variable of another type; so is the gradient.
template <class Y, class V>
auto relabelled(const V& x) {
  using X = typename V::tensor_type;
  return record(x, relabel<Y>(x.value()), from(x, [](const auto&, const auto& g) { return relabel<gradient_t<X>>(g); }));
}

/// Refuses images inside of grad (operations/grad.hpp) that domain axes cut.
template <class X>
constexpr void refuse_cut_images_inside_grad() {
  static_assert(
      !Nested<X> || !cut_in_space<bottom_t<X>>,
      "weft: grad(f, x): f pools or upsamples images that a domain axis cuts, and the exchange of their rows has no second "
      "derivative: gather the images first, to<Invariant<axis>>(x)");
}
/// The axes that cut images, in the order of their exchanges, the options on the sides of this rank's images with their halos,
/// and the shape of these.
struct CutSides {
  std::vector<CutAxis> axes;
  ConvolutionOptions options;
  Shape around;
};
/// Those of x. plan(dim, communicator, kernel, options): one of the plans above, or the like.
template <int dims, class C, class X, class Plan>
CutSides cut_sides(const char* operation, const Plan& plan, const PerDim& kernel, const ConvolutionOptions& options,
                   const Variable<C, X>& x) {
  CutSides sides{{}, options, x.shape()};
  const PerDim& behind = options.padding_after.count() == 0 ? options.padding : options.padding_after;
  std::array<std::size_t, dims> before, after, more;
  for (std::size_t dim = 0; dim < dims; ++dim)
    before[dim] = options.padding[dim], after[dim] = behind[dim], more[dim] = options.output_padding[dim];
  const auto& context = x.context();
  C::for_each_axis([&]<class A>(A axis) {
    constexpr int dim = shard_dim<placement_t<X, A>>;
    if constexpr (dim >= 2) {
      static_assert(dim < dims + 2, "weft: an axis cuts a dim that images of this operation do not have");
      static_assert(cut_once_in_space_at<X, dim>,
                    "weft: one axis may cut a dim of images that are pooled, enlarged or convolved");
      require_dim(operation, x.value(), dim);
      const HaloCall call{operation, A::name};
      const std::size_t at = std::size_t(dim) - 2, own = sides.around[dim];
      const CutPlan cut = plan(CutDim{call, at, own}, context.comm(axis), kernel[at], options);
      before[at] = cut.before, after[at] = cut.after, more[at] = cut.output_padding;
      if (cut.rows.none()) return;
      require_halo_rows(call, sides.around, std::size_t(dim), own, cut.rows);
      sides.around[dim] = cut.rows.around(own);
      sides.axes.push_back({context.comm(axis), std::size_t(dim), cut.rows});
    }
  });
  sides.options.padding = PerDim::of(before), sides.options.padding_after = PerDim::of(after);
  sides.options.output_padding = PerDim::of(more);
  return sides;
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/operations/exchanged_rows_impl.hpp>
#endif
