// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/convolution.hpp weft/operations/pooling.hpp weft/kernels/convolution.hpp
// covers: weft/operations/refused.hpp weft/operations/refused_standard.hpp
// covers: weft/kernels/convolution_shape.hpp weft/kernels/detail/convolution_columns.hpp
// covers: weft/kernels/detail/convolution_onednn.hpp weft/kernels/pooling.hpp
// Convolutions and pooling with only a forward: derivatives, equality over dp and over tp in all three shardings, placements,
// errors, and float and bfloat16 (oneDNN) compared with plain loops.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <weft/kernels/convolution.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/convolution_columns.hpp>
#include <weft/kernels/detail/convolution_onednn.hpp>
#include <weft/kernels/pooling.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/operations/refused.hpp>
#include <weft/operations/refused_standard.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::Exec;

namespace {

template <class... P>
using F = Tensor<float, Exec, P...>;

/// Column-like, then row-like, then depthwise with cut channels: the sums are those of one rank.
struct Network : Module<Network> {
  Parameter<Shard<tp, 0>> wide, wide_bias, each;
  Parameter<Shard<tp, 1>> narrow;
  Parameter<> bias, last;
  explicit Network(const auto& context)
      : wide(context, "wide", {4, 2, 3, 2}, normal(0.5)),
        wide_bias(context, "wide_bias", {4}, normal(0.5)),
        each(context, "each", {4, 1, 3, 3}, normal(0.5)),
        narrow(context, "narrow", {3, 4, 1, 1}, normal(0.5)),
        bias(context, "bias", {3}, normal(0.5)),
        last(context, "last", {2, 3, 2, 2}, normal(0.5)) {}
  auto forward(const auto& x) const {
    const auto inside = to<Replicated<tp>>(x);
    const auto hidden = depthwise_conv2d(tanh(conv2d(inside, wide, wide_bias, {.padding = 1})), each, {.padding = 1});
    const auto home = to<Invariant<tp>>(conv2d(hidden, narrow));
    const auto y = conv2d(home * home, last, {.stride = 2});
    return std::tuple(max_pool2d(home, {.kernel = 3, .stride = 2, .padding = 1}),
                      avg_pool2d(hidden, {.kernel = 2, .stride = 1, .padding = 1}), y * y, global_avg_pool2d(exp(y)));
  }
};
/// Weights that are a Variable, and a bias of whole channels.
struct Mixer : Module<Mixer> {
  Parameter<> w, bias;
  explicit Mixer(const auto& context) : w(context, "w", {3, 2, 2, 2}, normal(0.5)), bias(context, "bias", {3}, normal(0.5)) {}
  auto forward(const auto& x) const {
    const auto y = conv2d(x, w, bias, {.stride = 2, .padding = 1});
    return conv2d(x, beside(x, w) * 2, {.stride = 2, .padding = 1}) * y;
  }
};

// The convolution in plain loops, and its gradients for the gradient g, in double.
struct Plain {
  std::vector<double> y, dx, dw;
  Plain(const kernels::ConvolutionShape& s, const std::vector<double>& x, const std::vector<double>& w,
        const std::vector<double>& g)
      : y(s.samples * s.out * s.out_pixels()), dx(x.size()), dw(w.size()) {
    const std::size_t in = s.in / s.groups, out = s.out / s.groups;
    for (std::size_t n = 0; n < s.samples; ++n)
      for (std::size_t o = 0; o < s.out; ++o)
        for (std::size_t oy = 0; oy < s.out_height(); ++oy)
          for (std::size_t ox = 0; ox < s.out_width(); ++ox)
            for (std::size_t c = 0; c < in; ++c)
              for (std::size_t ky = 0; ky < s.kernel_height; ++ky)
                for (std::size_t kx = 0; kx < s.kernel_width; ++kx) {
                  const std::size_t iy = oy * s.stride + ky - s.padding, ix = ox * s.stride + kx - s.padding;  // wraps below 0
                  if (iy >= s.height || ix >= s.width) continue;
                  const std::size_t at = ((n * s.in + o / out * in + c) * s.height + iy) * s.width + ix;
                  const std::size_t weight = ((o * in + c) * s.kernel_height + ky) * s.kernel_width + kx;
                  const std::size_t to = ((n * s.out + o) * s.out_height() + oy) * s.out_width() + ox;
                  y[to] += x[at] * w[weight];
                  dx[at] += g[to] * w[weight];
                  dw[weight] += g[to] * x[at];
                }
  }
};

template <class T>
void check_convolution(const kernels::ConvolutionShape& s, double tolerance) {
  DefaultDevice device;
  const ConvolutionOptions options{s.stride, s.padding};
  const bool depthwise = s.groups > 1;
  const auto x =
      weft_test::tensor_of<T>(device, {s.samples, s.in, s.height, s.width}, weft_test::waves(s.samples * s.in * s.pixels()));
  const Shape weights{s.out, s.in / s.groups, s.kernel_height, s.kernel_width};
  const auto w = weft_test::tensor_of<T>(device, weights, weft_test::waves(weights.size(), 1));
  const auto y = depthwise ? depthwise_conv2d(x, w, options) : conv2d(x, w, options);
  const auto g = weft_test::tensor_of<T>(device, y.shape(), weft_test::waves(y.size(), 2));
  const Plain plain(s, weft_test::numbers_of(x), weft_test::numbers_of(w), weft_test::numbers_of(g));
  CHECK(weft_test::difference(weft_test::numbers_of(y), plain.y) < tolerance);
  CHECK(weft_test::difference(weft_test::numbers_of(depthwise ? depthwise_conv2d_input_gradient(x, w, g, options)
                                                              : conv2d_input_gradient(x, w, g, options)),
                              plain.dx) < tolerance);
  CHECK(weft_test::difference(weft_test::numbers_of(depthwise ? depthwise_conv2d_weight_gradient(x, w, g, options)
                                                              : conv2d_weight_gradient(x, w, g, options)),
                              plain.dw) < tolerance);
}

}  // namespace

TEST_CASE("a network of convolutions and pooling is its derivative, and one rank over dp and tp") {
  const auto make = [](const auto& context) { return Network(context); };
  CHECK(testing::check_layer(make, {2, 2, 5, 6}).compared > 100);
  CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(2, make, {4, 2, 5, 6}).compared > 100);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, {2, 2, 5, 6}).compared > 100);
  const auto mixer = [](const auto& context) { return Mixer(context); };
  CHECK(testing::check_layer(mixer, {2, 2, 4, 5}).compared > 40);
  CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(2, mixer, {2, 2, 4, 5}).compared > 40);
}

TEST_CASE("convolutions against plain loops") {
  for (const kernels::ConvolutionShape& s : {
           kernels::ConvolutionShape{
               .samples = 2, .in = 3, .height = 9, .width = 8, .out = 5, .kernel_height = 3, .kernel_width = 3, .padding = 1},
           {.samples = 1,
           .in = 1,
           .height = 7,
           .width = 6,
           .out = 4,
           .kernel_height = 5,
           .kernel_width = 2,
           .stride = 2,
           .padding = 2},
           {.samples = 2, .in = 16, .height = 7, .width = 7, .out = 32},
           {.samples = 2, .in = 16, .height = 8, .width = 8, .out = 16, .stride = 2},
           {.samples = 1,
           .in = 2,
           .height = 5,
           .width = 5,
           .out = 3,
           .kernel_height = 5,
           .kernel_width = 5,
           .stride = 3,
           .padding = 4},
           {.samples = 2,
           .in = 16,
           .height = 6,
           .width = 7,
           .out = 16,
           .kernel_height = 3,
           .kernel_width = 3,
           .padding = 1,
           .groups = 16},
           {.samples = 1,
           .in = 5,
           .height = 6,
           .width = 7,
           .out = 5,
           .kernel_height = 3,
           .kernel_width = 3,
           .stride = 2,
           .groups = 5},
       }) {
    check_convolution<double>(s, 1e-13);
    check_convolution<float>(s, 1e-5);
    check_convolution<bfloat16>(s, 2e-2);
  }
  check_convolution<float16>(
      {.samples = 2, .in = 3, .height = 6, .width = 5, .out = 2, .kernel_height = 3, .kernel_width = 3, .padding = 1}, 5e-3);
}

TEST_CASE("a convolution has the same bits in the second call, and of no samples nothing") {
  DefaultDevice device;
  const auto x = weft_test::tensor_of<float>(device, {2, 3, 8, 8}, weft_test::waves(384)),
             w = weft_test::tensor_of<float>(device, {4, 3, 3, 3}, weft_test::waves(108));
  const auto first = weft_test::numbers_of(conv2d(x, w));
  CHECK(weft_test::numbers_of(conv2d(x, w)) == first);
  const F<> none(device, {0, 3, 8, 8});
  CHECK(conv2d(none, w).shape() == Shape{0, 4, 6, 6});
  for (const double value : weft_test::numbers_of(conv2d_weight_gradient(none, w, conv2d(none, w)))) CHECK(value == 0);
}

TEST_CASE("pooling of windows") {
  DefaultDevice device;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto x = weft_test::tensor_of<bfloat16>(device, {1, 1, 3, 4}, {1, 5, 5, 2, 3, 4, 0, 1, nan, 2, -7, -8});
  const auto found = max_pool2d_and_place(x, {.kernel = 2, .stride = 1});
  CHECK(found.first.shape() == Shape{1, 1, 2, 3});
  CHECK(weft_test::numbers_of(found.second) == std::vector<double>{1, 1, 2, 8, 5, 7});
  CHECK(std::isnan(weft_test::numbers_of(found.first)[3]));
  const auto y = weft_test::tensor_of<float>(device, {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(weft_test::numbers_of(avg_pool2d(y, {.kernel = 2, .stride = 1, .padding = 1})) ==
        std::vector<double>{0.25, 0.75, 1.25, 0.75, 1.25, 3, 4, 2.25, 1, 2.25, 2.75, 1.5});
  CHECK(weft_test::numbers_of(global_avg_pool2d(y)) == std::vector<double>{3.5});
  CHECK(weft_test::numbers_of(max_pool2d(y, {.kernel = 2})) == std::vector<double>{5});  // a remainder is left out
}

TEST_CASE("placements of convolutions") {
  using Samples = F<Shard<dp, 0>, Replicated<tp>>;
  using Columns = F<Replicated<dp>, Shard<tp, 0>>;
  using Hidden = F<Shard<dp, 0>, Shard<tp, 1>>;
  using Rows = F<Replicated<dp>, Shard<tp, 1>>;
  static_assert(std::is_same_v<decltype(conv2d(std::declval<Samples>(), std::declval<Columns>())), Hidden>);
  static_assert(std::is_same_v<decltype(conv2d(std::declval<Hidden>(), std::declval<Rows>())), F<Shard<dp, 0>, Partial<tp>>>);
  static_assert(std::is_same_v<decltype(depthwise_conv2d(std::declval<Hidden>(), std::declval<Columns>())), Hidden>);
  static_assert(
      std::is_same_v<decltype(conv2d_input_gradient(std::declval<Samples>(), std::declval<Columns>(), std::declval<Hidden>())),
                     F<Shard<dp, 0>, Partial<tp>>>);
  static_assert(
      std::is_same_v<decltype(conv2d_weight_gradient(std::declval<Samples>(), std::declval<Columns>(), std::declval<Hidden>())),
                     F<Partial<dp>, Shard<tp, 0>>>);
  static_assert(std::is_same_v<decltype(sum_channels(std::declval<Hidden>())), F<Partial<dp>, Shard<tp, 0>>>);
  static_assert(std::is_same_v<decltype(relu(conv2d(detail::AlreadyRefused(), 1))), detail::AlreadyRefused>);
}

TEST_CASE("images that convolutions and pooling refuse") {
  DefaultDevice device;
  const F<> x(device, {2, 3, 8, 8}), w(device, {4, 3, 3, 3});
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] {
          conv2d(x, F<>(device, {4, 3}));
        }) ==
        "weft: conv2d([2, 3, 8, 8], [4, 3]): expected [samples, channels, height, width] and [out, in, kernel height, kernel "
        "width]");
  CHECK(refusal([&] {
          conv2d(x, F<>(device, {4, 2, 3, 3}));
        }) == "weft: conv2d([2, 3, 8, 8], [4, 2, 3, 3]): 3 channels, and the weights take 2");
  CHECK(refusal([&] {
          conv2d(x, F<>(device, {4, 3, 9, 3}));
        }) ==
        "weft: conv2d([2, 3, 8, 8], [4, 3, 9, 3]): a kernel of 9 x 3 with stride 1 and padding 0 does not fit into an image of 8 "
        "x 8");
  CHECK(refusal([&] { conv2d(x, w, {.stride = 0}); }) ==
        "weft: conv2d([2, 3, 8, 8], [4, 3, 3, 3]): a kernel of 3 x 3 with stride 0 and padding 0 does not fit into an image of 8 "
        "x 8");
  CHECK(refusal([&] { conv2d(x, w, F<>(device, {3})); }) ==
        "weft: conv2d([2, 3, 8, 8], [4, 3, 3, 3], [3]): 4 channels out and a bias of 3");
  CHECK(refusal([&] { depthwise_conv2d(x, w); }) ==
        "weft: depthwise_conv2d([2, 3, 8, 8], [4, 3, 3, 3]): 3 channels, and the weights take 3, where depthwise ones take 1");
  CHECK(refusal([&] {
          depthwise_conv2d(x, F<>(device, {4, 1, 3, 3}));
        }) == "weft: depthwise_conv2d([2, 3, 8, 8], [4, 1, 3, 3]): 3 channels, and the weights are of 4");
  CHECK(refusal([&] {
          max_pool2d(F<>(device, {2, 3}));
        }) == "weft: max_pool2d([2, 3]): expected [samples, channels, height, width]");
  CHECK(refusal([&] { avg_pool2d(x, {.kernel = 3, .padding = 2}); }) ==
        "weft: avg_pool2d([2, 3, 8, 8]): a window of 3 x 3 with padding 2 does not fit into an image of 8 x 8; the padding is at "
        "most half of the window");
}
