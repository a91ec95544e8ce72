// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations over images that domain axes cut and that bring the rows of the neighbours themselves. For each such axis a plan
// gives the rows that this rank needs around its piece, and the padding that remains for the operation: at the border of the
// domain, and along dims that no axis cuts. The operation then works as if the ranks of the axis had separate samples.
//
//   auto y = exchanged<2>("max_pool2d", options, x, plan_of(cut_window, kernel), [](const auto& images, const auto& sides) {
//     return pool(images, sides);
//   });                                                         // x and y Shard<dx, 2>
//
// PaddingMode::periodic closes the ring of ranks; other modes pad the pieces at the border of the domain.

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

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
void require_rows_of_stride(const char* operation, std::string_view axis, NamedOperand x, std::size_t own, std::size_t stride);

/// The same elements as a Variable of another type; so is the gradient.
template <class Y, class V>
auto relabelled(const V& x) {
  using X = typename V::tensor_type;
  return record(x, relabel<Y>(x.value()), from(x, [](const auto&, const auto& g) { return relabel<gradient_t<X>>(g); }));
}

// The placement of the first axis that cuts the images; Nothing if none does.
template <class X>
struct FirstCut {
  using type = Nothing;
};
template <class T, class E, class P, class... R>
struct FirstCut<Tensor<T, E, P, R...>> {
  using type = typename std::conditional_t<(shard_dim<P> >= 2), std::type_identity<P>, FirstCut<Tensor<T, E, R...>>>::type;
};

/// x, cut as P, with the rows of the neighbours; its ranks have samples then.
template <class P, class V>
auto bring_rows(const HaloCall& call, const V& x, const HaloRows& rows) {
  using X = typename V::tensor_type;
  using Y = replace_t<X, Shard<typename P::axis, 0>>;
  constexpr std::size_t dim = shard_dim<P>;
  const auto& comm = x.context().comm(typename P::axis());
  auto wide = rows.none() ? relabel<Y>(x.value()) : bring_halo<Y>(comm, call, x.value(), dim, rows);
  return record(x, std::move(wide), from(x, [call, rows](const auto& context, const auto& g) {
                  using G = gradient_t<X>;
                  return rows.none() ? relabel<G>(g) : send_halo_home<G>(context.comm(typename P::axis()), call, g, dim, rows);
                }));
}
/// y, whose ranks have samples, without the first and the last rows along the dim that P cuts; cut as P.
template <class P, class V>
auto drop_rows(const V& y, std::size_t before, std::size_t after) {
  using Y = typename V::tensor_type;
  using Z = replace_t<Y, P>;
  constexpr std::size_t dim = shard_dim<P>;
  const Shape shape = y.shape();
  const std::size_t kept = shape[dim] - before - after;
  auto piece = before + after == 0 ? relabel<Z>(y.value()) : Z(y.value().device(), with_extent(shape, dim, kept));
  if (before + after != 0) move_rows<false>(y.value(), dim, before, piece, 0, kept);
  return record(y, std::move(piece), from(y, [shape, before, after, kept](const auto&, const auto& g) {
                  using G = gradient_t<Y>;
                  if (before + after == 0) return relabel<G>(g);
                  G wide(g.device(), shape);
                  fill_zero(g.device(), wide.data(), wide.size());
                  move_rows<false>(g, dim, 0, wide, before, kept);
                  return wide;
                }));
}

/// Refuses images inside of grad (operations/grad.hpp) that domain axes cut.
template <class X>
constexpr void refuse_cut_images_inside_grad() {
  static_assert(
      !Nested<X> || !cut_in_space<bottom_t<X>>,
      "weft: grad(f, x): f pools or upsamples images that a domain axis cuts, and the exchange of their rows has no second "
      "derivative: gather the images first, to<Invariant<axis>>(x)");
}
/// f(images, options) of images with the rows of their neighbours, in the options of this rank's sides; the result is cut as x.
/// plan(dim, communicator, options): one of the two plans above.
template <int dims, class C, class X, class Plan, class F>
auto exchanged(const char* operation, const ConvolutionOptions& options, const Variable<C, X>& x, Plan&& plan, F&& f) {
  using P = typename FirstCut<X>::type;
  if constexpr (std::is_same_v<P, Nothing>) {
    return f(x, options);
  } else {
    using A = typename P::axis;
    constexpr std::size_t at = std::size_t(shard_dim<P>) - 2;
    static_assert(at < dims, "weft: an axis cuts a dim that images of this operation do not have");
    require_dim(operation, x.value(), shard_dim<P>);
    const HaloCall call{operation, A::name};
    const CutPlan cut = plan(CutDim{call, at, x.shape()[at + 2]}, x.context().comm(A()), options);
    const PerDim& behind = options.padding_after.count() == 0 ? options.padding : options.padding_after;
    std::array<std::size_t, dims> before, after, more;
    for (std::size_t dim = 0; dim < dims; ++dim)
      before[dim] = options.padding[dim], after[dim] = behind[dim], more[dim] = options.output_padding[dim];
    before[at] = cut.before, after[at] = cut.after, more[at] = cut.output_padding;
    ConvolutionOptions sides = options;
    sides.padding = PerDim::of(before), sides.padding_after = PerDim::of(after), sides.output_padding = PerDim::of(more);
    const auto y = exchanged<dims>(operation, sides, bring_rows<P>(call, x, cut.rows), plan, f);
    using V = std::remove_const_t<decltype(y)>;
    if constexpr (is_silent<V>) return AlreadyRefused();
    else return relabelled<replace_t<typename V::tensor_type, P>>(y);
  }
}
/// A plan with its kernel.
template <class Plan>
auto plan_of(Plan* plan, const PerDim& kernel) {
  return [plan, kernel](const CutDim& dim, const Communicator& comm, const ConvolutionOptions& options) {
    return plan(dim, comm, kernel[dim.at], options);
  };
}

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/operations/exchanged_rows_impl.hpp>
#endif
