// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pooling of placed images [samples, channels, ...] of one to three dims: the largest element or the mean of each window, or the
// mean of a whole image. An axis may cut samples or channels.
//
//   auto y = max_pool2d(relu(conv2d(x, w, b)), {.kernel = 2});   // stride 2: the windows lie side by side

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/pooling.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/tensor/tensor.hpp>

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
      "channels, or give the window in the type and a halo, max_pool2d<Window{3, 1, 1}>(to<Halo<axis, 2, 1>>(x))");
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
template <AnyTensor X>
X max_pool(const char* operation, std::size_t dims, const X& x, const PoolingOptions& options) {
  return max_pool_and_place(operation, dims, x, options).first;
}
template <class C, class X>
auto max_pool(const char* operation, std::size_t dims, const Variable<C, X>& x, const PoolingOptions& options) {
  auto found = max_pool_and_place(operation, dims, x.value(), options);
  return record(x, std::move(found.first),
                from(x, [operation, dims, shape = x.shape(), places = found.second, options](const auto&, const auto& g) {
                  return max_pool_gradient(operation, dims, shape, places, g, options);
                }));
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
  return record(x, average_pool(operation, dims, x.value(), options),
                from(x, [operation, dims, shape = x.shape(), options](const auto&, const auto& g) {
                  return average_pool_gradient(operation, dims, shape, g, options);
                }));
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
    else return operations::cast<typename X::value_type>(means);
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
template <int Dims, class C, class X>
auto global_average_pool(const char* operation, const Variable<C, X>& x) {
  auto means = global_average_pool<Dims>(operation, x.value());
  if constexpr (images_are_cut<X>) return means;
  else
    return record(x, std::move(means),
                  from(x, [shape = x.shape()](const auto&, const auto& g) { return global_average_pool_gradient(shape, g); }));
}

}  // namespace detail

namespace operations {

/// The largest element of each window of x [samples, channels, height, width]; a window's first of equal ones gets the gradient.
/// Throws ShapeError for a window that does not fit.
template <detail::ImageOperand X>
auto max_pool2d(const X& x, const PoolingOptions& options = {}) {
  return detail::max_pool("max_pool2d", 2, x, options);
}
/// The same of x [samples, channels, width].
template <detail::ImageOperand X>
auto max_pool1d(const X& x, const PoolingOptions& options = {}) {
  return detail::max_pool("max_pool1d", 1, x, options);
}
/// The same of x [samples, channels, depth, height, width].
template <detail::ImageOperand X>
auto max_pool3d(const X& x, const PoolingOptions& options = {}) {
  return detail::max_pool("max_pool3d", 3, x, options);
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
  return detail::average_pool("avg_pool2d", 2, x, options);
}
/// The same of x [samples, channels, width].
template <detail::ImageOperand X>
auto avg_pool1d(const X& x, const PoolingOptions& options = {}) {
  return detail::average_pool("avg_pool1d", 1, x, options);
}
/// The same of x [samples, channels, depth, height, width].
template <detail::ImageOperand X>
auto avg_pool3d(const X& x, const PoolingOptions& options = {}) {
  return detail::average_pool("avg_pool3d", 3, x, options);
}
template <AnyTensor G>
G avg_pool2d_gradient(const Shape& x, const G& g, const PoolingOptions& options = {}) {
  return detail::average_pool_gradient("avg_pool2d_gradient", 2, x, g, options);
}

/// The mean of each image of x [samples, channels, height, width], [samples, channels], in x's element type, summed in
/// accumulate_t. Partial stays Partial. Gradient: global_avg_pool2d_gradient(x.shape(), g).
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
