// SPDX-License-Identifier: Apache-2.0
#pragma once
// Windows that bring their halo themselves: convolutions whose kernel is known when the program runs, over images that domain
// axes cut. Each call has its exchange, which is hidden behind the outputs that need no neighbour; windows that share one have
// their sizes in the type (operations/window.hpp).
//
//   auto y = detail::exchanged_convolution<2, ConvolutionKind::plain>("conv2d", kernel, options, x, weight);   // Shard<dx, 2>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/kernels/padding.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/cut_convolution.hpp>
#include <weft/operations/exchanged_rows.hpp>

namespace weft::detail {

// Placements of images whose ranks are taken to have samples, and of a result Y that is cut as they were.
template <class P>
using as_samples_t = std::conditional_t<(shard_dim<P> >= 2), Shard<typename P::axis, 0>, P>;
template <class X>
struct CutImages;
template <class T, class E, class... P>
struct CutImages<Tensor<T, E, P...>> {
  using as_samples = Tensor<T, E, as_samples_t<P>...>;
  template <class Y>
  struct Result;
  template <class S, class... Q>
  struct Result<Tensor<S, E, Q...>> {
    using type = Tensor<S, E, std::conditional_t<(shard_dim<P> >= 2), P, Q>...>;
  };
};

/// x with copies of elements around each image.
template <class C, class X>
Variable<C, X> padded_images(const char* operation, const Variable<C, X>& x, const kernels::ConvolutionShape& s) {
  if (!s.has_padding()) return x;
  Shape shape = x.shape();
  for (std::size_t dim = 2; dim < shape.rank(); ++dim) {
    const std::size_t d = dim - 2 + s.most_dims - s.dims, most = std::max(s.before[d], s.after[d]);
    if (most != 0 && (shape[dim] == 0 || (s.mode == PaddingMode::reflect && most >= shape[dim])))
      throw_error<ShapeError>({call_text(operation, {x.value()}), " over images that an axis cuts: a padding of ", s.before[d],
                               " and ", s.after[d], " elements at the ends of dim ", dim, ", of which this rank has ", shape[dim],
                               "; PaddingMode::reflect takes less than the extent"});
    shape[dim] = s.padded(d);
  }
  using T = typename X::value_type;
  X wide(x.value().device(), shape);
  kernels::pad_images<T>(wide.device(), s, x.value().data(), wide.data());
  return record(x, std::move(wide), from(x, [s, shape = x.shape()](const auto&, const auto& g) {
                  const gradient_t<X> dx(g.device(), shape);
                  kernels::fold_images<T>(g.device(), s, g.data(), dx.data());
                  return dx;
                }));
}

/// A convolution of the images x, which axes cut, and whose ranks are now taken to have samples.
template <int dims, ConvolutionKind kind, class C, class X, class... W>
auto hidden_convolution(const char* operation, const PerDim& kernel, const ConvolutionOptions& options, const Variable<C, X>& x,
                        const W&... weights) {
  CutSides sides =
      cut_sides<dims>(operation, kind == ConvolutionKind::transposed ? cut_transposed : cut_window, kernel, options, x);
  CutConvolution<Tensor<typename X::value_type, typename X::execution_space>> cut{{options}, std::move(sides.axes)};
  const auto images = relabelled<typename CutImages<X>::as_samples>(x);
  const PerDim& behind = options.padding_after.count() == 0 ? options.padding : options.padding_after;
  if (x.shape().rank() != dims + 2 || !options.padding.fits(dims) || !behind.fits(dims) || !options.output_padding.fits(dims))
    return convolution_of<kind>(operation, dims, cut, images, weights...);  // throws
  cut.padding = sides.options.padding, cut.padding_after = sides.options.padding_after;
  cut.output_padding = sides.options.output_padding;
  if (options.mode == PaddingMode::zeros || kind == ConvolutionKind::transposed)
    return convolution_of<kind>(operation, dims, cut, images, weights...);
  kernels::ConvolutionShape copies{.samples = x.shape()[0], .in = x.shape()[1], .dims = dims, .mode = options.mode};
  for (std::size_t dim = 0; dim < dims; ++dim) {
    const std::size_t d = dim + copies.most_dims - dims;
    copies.extents[d] = x.shape()[dim + 2];
    copies.before[d] = cut.padding[dim], copies.after[d] = cut.padding_after[dim];
  }
  cut.padding = cut.padding_after = 0;
  cut.mode = PaddingMode::zeros;
  return convolution_of<kind>(operation, dims, cut, padded_images(operation, images, copies), weights...);
}

/// conv1d to conv3d, or the transposed ones, of x, whose images domain axes cut; the result is placed as x along them. One
/// exchange for each such axis.
template <int dims, ConvolutionKind kind, class C, class X, class... W>
auto exchanged_convolution(const char* operation, const PerDim& kernel, const ConvolutionOptions& options,
                           const Variable<C, X>& x, const W&... weights) {
  const auto y = hidden_convolution<dims, kind>(operation, kernel, options, x, weights...);
  using V = std::remove_const_t<decltype(y)>;
  if constexpr (is_silent<V>) return AlreadyRefused();
  else return relabelled<typename CutImages<X>::template Result<typename V::tensor_type>::type>(y);
}

}  // namespace weft::detail
