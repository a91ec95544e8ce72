// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pooling of placed images [samples, channels, height, width]: the largest element or the mean of each window, or the mean of a
// whole image. An axis may cut samples or channels.
//
//   auto y = max_pool2d(relu(conv2d(x, w, b)), {.kernel = 2});   // stride 2: the windows lie side by side

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <weft/autograd/variable.hpp>
#include <weft/kernels/pooling.hpp>
#include <weft/operations/along_dim.hpp>
#include <weft/operations/rules.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

/// A square window, the step between windows (0: the window's size) and the pixels around the image: of a mean zeros, of a
/// maximum none.
struct PoolingOptions {
  std::size_t kernel = 2, stride = 0, padding = 0;
};

namespace detail {

template <class X>
constexpr void require_whole_images() {
  static_assert(
      !cut_between<X, 2, 3>,
      "weft: pooling needs whole images, but an axis cuts their height or width (dims 2 and 3): cut samples or channels");
}
inline kernels::ConvolutionShape pooling_shape(const char* operation, NamedOperand images, const PoolingOptions& options) {
  const Shape& x = images.shape();
  if (x.rank() != 4) throw_error<ShapeError>({call_text(operation, {images}), ": expected [samples, channels, height, width]"});
  const std::size_t kernel = options.kernel;
  if (kernel == 0 || 2 * options.padding > kernel || x[2] + 2 * options.padding < kernel || x[3] + 2 * options.padding < kernel)
    throw_error<ShapeError>({call_text(operation, {images}), ": a window of ", kernel, " x ", kernel, " with padding ",
                             options.padding, " does not fit into an image of ", x[2], " x ", x[3],
                             "; the padding is at most half of the window"});
  return {.samples = x[0],
          .in = x[1],
          .height = x[2],
          .width = x[3],
          .out = x[1],
          .kernel_height = kernel,
          .kernel_width = kernel,
          .stride = options.stride == 0 ? kernel : options.stride,
          .padding = options.padding};
}
inline Shape pooled(Shape x, const kernels::ConvolutionShape& s) {
  x[2] = s.out_height();
  x[3] = s.out_width();
  return x;
}

}  // namespace detail

namespace operations {

/// The largest element of each window of x [samples, channels, height, width] and its place in its image, height times width
/// (std::int32_t); the first of equal ones. Gradient: max_pool2d_gradient(x, places, g, options).
template <AnyTensor X>
auto max_pool2d_and_place(const X& x, const PoolingOptions& options = {}) {
  require_not_partial<X>();
  detail::require_whole_images<X>();
  const auto s = detail::pooling_shape("max_pool2d", x, options);
  const Shape shape = detail::pooled(x.shape(), s);
  std::pair out{X(x.device(), shape), with_scalar_t<X, std::int32_t>(x.device(), shape)};
  kernels::max_pool<typename X::value_type>(x.device(), s, x.data(), out.first.data(), out.second.data());
  return out;
}
template <AnyTensor X>
X max_pool2d(const X& x, const PoolingOptions& options = {}) {
  return max_pool2d_and_place(x, options).first;
}
template <AnyTensor N, AnyTensor G>
G max_pool2d_gradient(const Shape& x, const N& places, const G& g, const PoolingOptions& options = {}) {
  detail::require_same_shape("max_pool2d_gradient", places, g);
  G out(g.device(), x);
  kernels::max_pool_backward<typename G::value_type>(g.device(), detail::pooling_shape("max_pool2d_gradient", x, options),
                                                     g.data(), places.data(), out.data());
  return out;
}

/// The mean of each window of x [samples, channels, height, width], with zeros in the padding. Partial stays Partial. Gradient:
/// avg_pool2d_gradient(x.shape(), g, options).
template <AnyTensor X>
X avg_pool2d(const X& x, const PoolingOptions& options = {}) {
  detail::require_whole_images<X>();
  const auto s = detail::pooling_shape("avg_pool2d", x, options);
  X out(x.device(), detail::pooled(x.shape(), s));
  kernels::average_pool<typename X::value_type>(x.device(), s, x.data(), out.data());
  return out;
}
template <AnyTensor G>
G avg_pool2d_gradient(const Shape& x, const G& g, const PoolingOptions& options = {}) {
  const auto s = detail::pooling_shape("avg_pool2d_gradient", x, options);
  detail::require_same_shape("avg_pool2d_gradient", detail::pooled(x, s), g);
  G out(g.device(), x);
  kernels::average_pool_backward<typename G::value_type>(g.device(), s, g.data(), out.data());
  return out;
}

/// The mean of each image of x [samples, channels, height, width], [samples, channels], in x's element type, summed in
/// accumulate_t. Partial stays Partial. Gradient: global_avg_pool2d_gradient(x.shape(), g).
template <AnyTensor X>
auto global_avg_pool2d(const X& x) {
  detail::require_whole_images<X>();
  if (x.shape().rank() != 4 || x.shape()[2] * x.shape()[3] == 0)
    throw_error<ShapeError>({detail::call_text("global_avg_pool2d", {x}), ": expected [samples, channels, height, width]"});
  if constexpr (detail::cut_between<X, 2, 3>) {
    return detail::AlreadyRefused();
  } else {
    const auto means = mean<2>(flatten<2, 3>(x));
    if constexpr (std::is_same_v<std::remove_const_t<decltype(means)>, X>) return means;
    else return cast<typename X::value_type>(means);
  }
}
template <AnyTensor G>
G global_avg_pool2d_gradient(const Shape& x, const G& g) {
  using T = typename G::value_type;
  G out(g.device(), x);
  kernels::spread_along<T>(g.device(), {x[0] * x[1], x[2] * x[3], 1}, g.data(), accumulate_t<T>(1.0 / double(x[2] * x[3])),
                           out.data());
  return out;
}

template <class C, class X>
auto max_pool2d(const Variable<C, X>& x, const PoolingOptions& options = {}) {
  auto found = max_pool2d_and_place(x.value(), options);
  return detail::record(x, std::move(found.first),
                        detail::from(x, [shape = x.shape(), places = found.second, options](const auto&, const auto& g) {
                          return max_pool2d_gradient(shape, places, g, options);
                        }));
}
template <class C, class X>
auto avg_pool2d(const Variable<C, X>& x, const PoolingOptions& options = {}) {
  return detail::record(x, avg_pool2d(x.value(), options),
                        detail::from(x, [shape = x.shape(), options](const auto&, const auto& g) {
                          return avg_pool2d_gradient(shape, g, options);
                        }));
}
template <class C, class X>
auto global_avg_pool2d(const Variable<C, X>& x) {
  auto means = global_avg_pool2d(x.value());
  if constexpr (detail::cut_between<X, 2, 3>) return means;
  else
    return detail::record(x, std::move(means), detail::from(x, [shape = x.shape()](const auto&, const auto& g) {
                            return global_avg_pool2d_gradient(shape, g);
                          }));
}

}  // namespace operations

}  // namespace weft
