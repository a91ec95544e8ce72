// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pooling of placed images [samples, channels, ...] of one to three dims: the largest element or the mean of each window, or the
// mean of a whole image. An axis may cut samples or channels; domain axes may cut the images of Variables, whose windows bring
// the rows of the neighbours (operations/cut_passes.hpp).
//
//   auto y = max_pool2d(relu(conv2d(x, w, b)), {.kernel = 2});   // stride 2: the windows lie side by side

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/autograd/nested_variable.hpp>
#include <weft/autograd/variable.hpp>
#include <weft/kernels/along_dim.hpp>
#include <weft/kernels/pooling.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/cut_passes.hpp>
#include <weft/operations/cut_pooling.hpp>
#include <weft/operations/exchanged_rows.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/operations/sums_over_space.hpp>
#include <weft/tensor/tensor.hpp>
#include <weft/tensor/to.hpp>

namespace weft {

/// A window, the step between windows (0: the window's size) and the elements on both sides of the image: of a mean zeros, of a
/// maximum none. One number for all dims, or one for each.
struct PoolingOptions {
  PerDim kernel = 2, stride = 0, padding = 0;
  PerDim padding_after = {};  ///< elements behind the last one; `padding` unless set
};

namespace detail {

template <class X>
inline constexpr bool images_are_cut = cut_between<X, 2, int(Shape::max_rank) - 1>;
template <class X>
constexpr void require_whole_images() {
  static_assert(
      !images_are_cut<X>,
      "weft: pooling needs whole images, but an axis cuts their dims, which are from 2 (height and width): cut samples or "
      "channels, or images of Variables over a domain axis (dx, dy, dz), or give the window in the type and a halo, "
      "max_pool2d<Window{3, 1, 1}>(to<Halo<axis, 2, 1>>(x))");
}
/// The windows of images of `dims` dims. Throws ShapeError for extents and options that do not fit.
kernels::ConvolutionShape pooling_shape(const char* operation, std::size_t dims, NamedOperand images,
                                        const PoolingOptions& options);
inline Shape pooled(Shape x, const kernels::ConvolutionShape& s) {
  for (std::size_t dim = 0; dim < s.dims; ++dim) x[dim + 2] = s.out_extent(s.most_dims - s.dims + dim);
  return x;
}

template <AnyTensor X>
auto max_pool_and_place(const char* operation, std::size_t dims, const X& x, const PoolingOptions& options) {
  require_not_partial<X>();
  require_whole_images<X>();
  const auto s = pooling_shape(operation, dims, x, options);
  require_places(operation, x, s.pixels());
  const Shape shape = pooled(x.shape(), s);
  std::pair out{X(x.device(), shape), with_scalar_t<X, std::int32_t>(x.device(), shape)};
  kernels::max_pool<typename X::value_type>(x.device(), s, x.data(), out.first.data(), out.second.data());
  return out;
}
template <AnyTensor N, AnyTensor G>
G max_pool_gradient(const char* operation, std::size_t dims, const Shape& x, const N& places, const G& g,
                    const PoolingOptions& options) {
  require_same_shape(operation, places, g);
  const auto s = pooling_shape(operation, dims, x, options);
  G out(g.device(), x);
  kernels::max_pool_backward<typename G::value_type>(g.device(), s, g.data(), places.data(), out.data());
  return out;
}
// The elements of images at the places of max_pool_and_place.
template <AnyTensor X, AnyTensor N>
X pooled_elements(const X& x, const N& places) {
  X out(x.device(), places.shape());
  const std::size_t planes = x.shape()[0] * x.shape()[1];
  if (out.size() != 0)
    kernels::take_along<typename X::value_type>(x.device(), {planes, x.size() / planes, 1}, out.size() / planes, x.data(),
                                                places.data(), out.data());
  return out;
}
template <AnyTensor X>
X max_pool(const char* operation, std::size_t dims, const X& x, const PoolingOptions& options) {
  return max_pool_and_place(operation, dims, x, options).first;
}
template <class C, class X>
auto max_pool(const char* operation, std::size_t dims, const Variable<C, X>& x, const PoolingOptions& options) {
  auto found = max_pool_and_place(operation, dims, bottom_of(x), options);
  const auto placed = [operation, dims, shape = x.shape(), places = found.second, options](const auto& g) {
    return max_pool_gradient(operation, dims, shape, places, g, options);
  };
  if constexpr (Nested<X>)
    return linear_pair([places = found.second](const auto& value) { return pooled_elements(value, places); }, placed, x);
  else return record_by_gradient(x, std::move(found.first), placed);
}

template <AnyTensor X>
X average_pool(const char* operation, std::size_t dims, const X& x, const PoolingOptions& options) {
  require_whole_images<X>();
  const auto s = pooling_shape(operation, dims, x, options);
  X out(x.device(), pooled(x.shape(), s));
  kernels::average_pool<typename X::value_type>(x.device(), s, x.data(), out.data());
  return out;
}
template <AnyTensor G>
G average_pool_gradient(const char* operation, std::size_t dims, const Shape& x, const G& g, const PoolingOptions& options) {
  const auto s = pooling_shape(operation, dims, x, options);
  require_same_shape(operation, pooled(x, s), g);
  G out(g.device(), x);
  kernels::average_pool_backward<typename G::value_type>(g.device(), s, g.data(), out.data());
  return out;
}
template <class C, class X>
auto average_pool(const char* operation, std::size_t dims, const Variable<C, X>& x, const PoolingOptions& options) {
  return linear_pair([=](const auto& value) { return average_pool(operation, dims, value, options); },
                     [=, shape = x.shape()](const auto& g) { return average_pool_gradient(operation, dims, shape, g, options); },
                     x);
}

/// The windows of images that domain axes cut, of a piece with its halos, and these axes. `beyond`: the rows of the padding.
template <int dims>
struct CutPooling {
  std::vector<CutAxis> axes;
  kernels::ConvolutionShape s;
  template <class C, class X>
  CutPooling(const char* operation, const Variable<C, X>& x, const PoolingOptions& options, double beyond) {
    std::array<std::size_t, dims> stride{};
    const PerDim& behind = options.padding_after.count() == 0 ? options.padding : options.padding_after;
    bool fits = options.kernel.fits(dims) && options.stride.fits(dims) && options.padding.fits(dims) && behind.fits(dims);
    for (std::size_t dim = 0; dim < dims && fits; ++dim) {
      stride[dim] = options.stride[dim] == 0 ? options.kernel[dim] : options.stride[dim];
      fits = std::max(options.padding[dim], behind[dim]) <= options.kernel[dim] / 2;
    }
    if (!fits) pooling_shape(operation, dims, x.value(), options);  // throws, on all ranks
    const CutSides sides =
        cut_sides<dims>(operation, cut_window, options.kernel,
                        {.stride = PerDim::of(stride), .padding = options.padding, .padding_after = options.padding_after}, x);
    axes = sides.axes;
    for (CutAxis& axis : axes) axis.rows.beyond.value = beyond;
    s = pooling_shape(operation, dims, sides.around,
                      {options.kernel, sides.options.stride, sides.options.padding, sides.options.padding_after});
  }
};
template <int dims, class X>
auto max_pool_over_images(const char* operation, const X& x, const PoolingOptions& options) {
  return max_pool(operation, dims, x, options);
}
template <int dims, class C, class X>
requires(cut_in_space<X>) Variable<C, X> max_pool_over_images(const char* operation, const Variable<C, X>& x,
                                                              const PoolingOptions& options) {
  require_not_partial<X>();
  const CutPooling<dims> cut(operation, x, options, -std::numeric_limits<double>::infinity());
  require_places(operation, x.value(), cut.s.pixels());
  auto& device = x.value().device();
  const Shape shape = pooled(x.shape(), cut.s);
  const Tensor<std::int32_t, typename X::execution_space> places(device, shape);
  return cut_outputs<PlacedWindows>(MaxPooling<typename X::value_type>(cut.s), cut.axes, x, X(device, shape), places);
}
template <int dims, class X>
auto average_pool_over_images(const char* operation, const X& x, const PoolingOptions& options) {
  return average_pool(operation, dims, x, options);
}
template <int dims, class C, class X>
requires(cut_in_space<X>) Variable<C, X> average_pool_over_images(const char* operation, const Variable<C, X>& x,
                                                                  const PoolingOptions& options) {
  const CutPooling<dims> cut(operation, x, options, 0);
  return cut_outputs<Windows>(AveragePooling<typename X::value_type>{cut.s}, cut.axes, x,
                              X(x.value().device(), pooled(x.shape(), cut.s)));
}
template <int dims, class C, class X>
requires(Nested<X>&& cut_in_space<bottom_t<X>>) AlreadyRefused
    max_pool_over_images(const char*, const Variable<C, X>&, const PoolingOptions&) {
  refuse_cut_images_inside_grad<X>();
  return {};
}
template <int dims, class C, class X>
requires(Nested<X>&& cut_in_space<bottom_t<X>>) AlreadyRefused
    average_pool_over_images(const char*, const Variable<C, X>&, const PoolingOptions&) {
  refuse_cut_images_inside_grad<X>();
  return {};
}

void require_images(const char* operation, std::size_t dims, NamedOperand x);
template <int Dims, AnyTensor X>
auto global_average_pool(const char* operation, const X& x) {
  require_whole_images<X>();
  require_images(operation, Dims, x);
  if constexpr (images_are_cut<X>) {
    return AlreadyRefused();
  } else {
    const auto means = operations::mean<2>(operations::flatten<2, Dims + 1>(x));
    if constexpr (std::is_same_v<std::remove_const_t<decltype(means)>, X>) return means;
    else return weft::cast<typename X::value_type>(means);
  }
}
template <AnyTensor G>
G global_average_pool_gradient(const Shape& x, const G& g) {
  using T = typename G::value_type;
  G out(g.device(), x);
  const std::size_t images = x[0] * x[1], pixels = images == 0 ? 1 : x.size() / images;
  kernels::spread_along<T>(g.device(), {images, pixels, 1}, g.data(), accumulate_t<T>(1.0 / double(pixels)), out.data());
  return out;
}
// The placement of a number for each image of which ranks of domain axes have pieces, and of the terms of such a number.
struct NumberOfImage {
  template <class P>
  using of = std::conditional_t<(shard_dim<P> > 1), Invariant<typename P::axis>, P>;
};
struct TermOfImage {
  template <class P>
  using of = std::conditional_t<(shard_dim<P> > 1), Partial<typename P::axis>, P>;
};
// The means of images of which ranks have pieces, and their gradient.
template <int Dims, class C, class X>
auto global_average_over_space(const char* operation, const Variable<C, X>& x) {
  using T = typename X::value_type;
  require_images(operation, Dims, x.value());
  const Shape& shape = x.shape();
  const std::size_t images = shape[0] * shape[1], pixels = images == 0 ? 0 : x.value().size() / images;
  const double whole = count_over_space<X, 2>(x.context(), pixels);
  ruled_t<TermOfImage, X, accumulate_t<T>> sums(
      x.value().device(), Shape{shape[0], shape[1]}.set_sharding(0, shape.sharding(0)).set_sharding(1, shape.sharding(1)));
  kernels::sum_along<T>(x.value().device(), {images, pixels, 1}, x.value().data(), accumulate_t<T>(1), sums.data());
  const auto means =
      operations::scale(to_layout_of<ruled_t<NumberOfImage, X, accumulate_t<T>>>(x.context(), std::move(sums)), 1 / whole);
  return record(x, weft::cast<T>(means), from(x, [shape, images, pixels, whole](const auto&, const auto& g) {
                  gradient_t<X> dx(g.device(), shape);
                  kernels::spread_along<T>(g.device(), {images, pixels, 1}, g.data(), accumulate_t<T>(1 / whole), dx.data());
                  return dx;
                }));
}
template <int Dims, class C, class X>
auto global_average_pool(const char* operation, const Variable<C, X>& x) {
  if constexpr (cut_in_space<X>) return global_average_over_space<Dims>(operation, x);
  else if constexpr (images_are_cut<bottom_t<X>>) return global_average_pool<Dims>(operation, bottom_of(x));
  else
    return linear_pair([=](const auto& value) { return global_average_pool<Dims>(operation, value); },
                       [shape = x.shape()](const auto& g) { return global_average_pool_gradient(shape, g); }, x);
}

}  // namespace detail

namespace operations {

/// The largest element of each window of x [samples, channels, height, width]; a window's first of equal ones gets the gradient.
/// Throws ShapeError for a window that does not fit. Domain axes may cut the images of a Variable: the result is cut alike; all
/// pieces but the last are multiples of the stride (ShapeError).
template <detail::ImageOperand X>
auto max_pool2d(const X& x, const PoolingOptions& options = {}) {
  return detail::max_pool_over_images<2>("max_pool2d", x, options);
}
/// The same of x [samples, channels, width].
template <detail::ImageOperand X>
auto max_pool1d(const X& x, const PoolingOptions& options = {}) {
  return detail::max_pool_over_images<1>("max_pool1d", x, options);
}
/// The same of x [samples, channels, depth, height, width].
template <detail::ImageOperand X>
auto max_pool3d(const X& x, const PoolingOptions& options = {}) {
  return detail::max_pool_over_images<3>("max_pool3d", x, options);
}
/// max_pool2d, and each element's place in its image, height times width (std::int32_t). Gradient: max_pool2d_gradient(x.shape(),
/// places, g, options).
template <AnyTensor X>
auto max_pool2d_and_place(const X& x, const PoolingOptions& options = {}) {
  return detail::max_pool_and_place("max_pool2d", 2, x, options);
}
template <AnyTensor N, AnyTensor G>
G max_pool2d_gradient(const Shape& x, const N& places, const G& g, const PoolingOptions& options = {}) {
  return detail::max_pool_gradient("max_pool2d_gradient", 2, x, places, g, options);
}

/// The mean of each window of x [samples, channels, height, width], with zeros in the padding. Partial stays Partial. Gradient:
/// avg_pool2d_gradient(x.shape(), g, options).
template <detail::ImageOperand X>
auto avg_pool2d(const X& x, const PoolingOptions& options = {}) {
  return detail::average_pool_over_images<2>("avg_pool2d", x, options);
}
/// The same of x [samples, channels, width].
template <detail::ImageOperand X>
auto avg_pool1d(const X& x, const PoolingOptions& options = {}) {
  return detail::average_pool_over_images<1>("avg_pool1d", x, options);
}
/// The same of x [samples, channels, depth, height, width].
template <detail::ImageOperand X>
auto avg_pool3d(const X& x, const PoolingOptions& options = {}) {
  return detail::average_pool_over_images<3>("avg_pool3d", x, options);
}
template <AnyTensor G>
G avg_pool2d_gradient(const Shape& x, const G& g, const PoolingOptions& options = {}) {
  return detail::average_pool_gradient("avg_pool2d_gradient", 2, x, g, options);
}

/// The mean of each image of x [samples, channels, height, width], [samples, channels], in x's element type, summed in
/// accumulate_t. Partial stays Partial. Gradient: global_avg_pool2d_gradient(x.shape(), g). Domain axes may cut the images of a
/// Variable, in pieces of any extents: the sums are all-reduced, and the result is Invariant on these axes.
template <detail::ImageOperand X>
auto global_avg_pool2d(const X& x) {
  return detail::global_average_pool<2>("global_avg_pool2d", x);
}
/// The same of x [samples, channels, width].
template <detail::ImageOperand X>
auto global_avg_pool1d(const X& x) {
  return detail::global_average_pool<1>("global_avg_pool1d", x);
}
/// The same of x [samples, channels, depth, height, width].
template <detail::ImageOperand X>
auto global_avg_pool3d(const X& x) {
  return detail::global_average_pool<3>("global_avg_pool3d", x);
}
template <AnyTensor G>
G global_avg_pool2d_gradient(const Shape& x, const G& g) {
  return detail::global_average_pool_gradient(x, g);
}

}  // namespace operations

}  // namespace weft

#ifndef WEFT_COMPILED
#include <weft/operations/pooling_impl.hpp>
#endif
