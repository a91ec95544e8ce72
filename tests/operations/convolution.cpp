// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/convolution.hpp weft/operations/pooling.hpp weft/kernels/convolution.hpp
// covers: weft/operations/refused.hpp weft/operations/refused_standard.hpp
// covers: weft/kernels/convolution_shape.hpp weft/kernels/detail/convolution_columns.hpp
// covers: weft/operations/convolution_options.hpp weft/operations/convolution_rules.hpp weft/kernels/padding.hpp
// covers: weft/kernels/detail/convolution_onednn.hpp weft/kernels/pooling.hpp
// Convolutions and pooling with only a forward: derivatives, equality over dp and over tp in all three shardings, placements,
// errors, and float and bfloat16 (oneDNN) compared with plain loops.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include <weft/kernels/convolution.hpp>
#include <weft/kernels/convolution_shape.hpp>
#include <weft/kernels/detail/convolution_columns.hpp>
#include <weft/kernels/detail/convolution_onednn.hpp>
#include <weft/kernels/padding.hpp>
#include <weft/kernels/pooling.hpp>
#include <weft/operations/convolution.hpp>
#include <weft/operations/convolution_options.hpp>
#include <weft/operations/convolution_rules.hpp>
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

/// The same in three dims with copies around the image, transposed in both shardings, and images of one dim.
struct Fields : Module<Fields> {
  Parameter<Shard<tp, 0>> wide, wide_bias, each, each_bias, narrow, line;
  Parameter<Shard<tp, 1>> spread;
  Parameter<> last;
  explicit Fields(const auto& context)
      : wide(context, "wide", {4, 2, 2, 1, 3}, normal(0.5)),
        wide_bias(context, "wide_bias", {4}, normal(0.5)),
        each(context, "each", {4, 1, 1, 2, 2}, normal(0.5)),
        each_bias(context, "each_bias", {4}, normal(0.5)),
        narrow(context, "narrow", {4, 3, 1, 2, 1}, normal(0.5)),
        line(context, "line", {2, 3, 2}, normal(0.5)),
        spread(context, "spread", {3, 4, 1, 1, 2}, normal(0.5)),
        last(context, "last", {2, 2, 1, 2, 1}, normal(0.5)) {}
  auto forward(const auto& x) const {
    const ConvolutionOptions periodic{.padding = {1, 0, 1}, .mode = PaddingMode::periodic};
    const auto hidden = depthwise_conv3d(tanh(conv3d(to<Replicated<tp>>(x), wide, wide_bias, periodic)), each, each_bias,
                                         {.padding = {0, 1, 0}, .dilation = {1, 2, 1}, .mode = PaddingMode::reflect});
    const auto home = to<Invariant<tp>>(conv_transpose3d(hidden, narrow, {.stride = {1, 2, 1}, .padding = {0, 1, 0}}));
    const auto outside =
        conv_transpose3d(to<Replicated<tp>>(home * home), spread, wide_bias, {.stride = 2, .output_padding = {1, 0, 1}});
    const auto lines = conv1d(to<Replicated<tp>>(flatten<2, 4>(home)), line, {.stride = 3, .padding_after = 2});
    return std::tuple(
        max_pool3d(home, {.kernel = {1, 3, 2}, .stride = 1, .padding = {0, 1, 1}}), avg_pool1d(lines, {.kernel = 3, .stride = 2}),
        global_avg_pool3d(outside), avg_pool3d(outside, {.kernel = {2, 1, 3}}),
        conv_transpose3d(x * x, beside(x, last) * 2, {.stride = 2, .groups = 1}), max_pool1d(lines), global_avg_pool1d(lines));
  }
};

/// A convolution as its operands' shapes and options.
struct Case {
  std::size_t dims;
  Shape x, w;
  ConvolutionOptions options;
  bool depthwise = false, transposed = false;
};

// The convolution in plain loops over signed coordinates, and its gradients for the gradient g, in double. Shapes are extended to
// three dims.
struct Plain {
  std::vector<double> y, dx, dw;
  Plain(const Case& of, const Shape& result, const std::vector<double>& x, const std::vector<double>& w,
        const std::vector<double>& g)
      : y(result.size()), dx(x.size()), dw(w.size()) {
    const auto three = [&](const Shape& shape) {
      std::array<int, 3> all{1, 1, 1};
      for (std::size_t d = 0; d < of.dims; ++d) all[3 - of.dims + d] = int(shape[d + 2]);
      return all;
    };
    const auto each = [&](const PerDim& numbers, int missing) {
      std::array<int, 3> all{missing, missing, missing};
      for (std::size_t d = 0; d < of.dims; ++d) all[3 - of.dims + d] = int(numbers[d]);
      return all;
    };
    const auto image = three(of.transposed ? result : of.x), out = three(of.transposed ? of.x : result), kernel = three(of.w),
               stride = each(of.options.stride, 1), dilation = each(of.options.dilation, 1), before = each(of.options.padding, 0);
    // Of the convolution from images [samples, in, ...] to [samples, outs, ...]; a transposed one goes the other way.
    const std::size_t samples = of.x[0], in = of.transposed ? result[1] : of.x[1], outs = of.w[0],
                      groups = of.depthwise ? in : of.options.groups, in_group = in / groups, out_group = outs / groups;
    const auto flat = [](const std::array<int, 3>& at, const std::array<int, 3>& extents) {
      return std::size_t((at[0] * extents[1] + at[1]) * extents[2] + at[2]);
    };
    const auto count = [](const std::array<int, 3>& extents) { return std::size_t(extents[0] * extents[1] * extents[2]); };
    const auto walk = [](const std::array<int, 3>& extents, const auto& f) {
      for (int z = 0; z < extents[0]; ++z)
        for (int y = 0; y < extents[1]; ++y)
          for (int x = 0; x < extents[2]; ++x) f(std::array<int, 3>{z, y, x});
    };
    for (std::size_t n = 0; n < samples; ++n)
      for (std::size_t o = 0; o < outs; ++o)
        for (std::size_t c = 0; c < in_group; ++c)
          walk(out, [&](const std::array<int, 3>& to) {
            walk(kernel, [&](const std::array<int, 3>& k) {
              std::array<int, 3> from{};
              for (std::size_t d = 0; d < 3; ++d) {
                int at = to[d] * stride[d] + k[d] * dilation[d] - before[d];
                const int extent = image[d];
                switch (of.options.mode) {
                  case PaddingMode::zeros:
                    if (at < 0 || at >= extent) return;
                    break;
                  case PaddingMode::periodic:
                    while (at < 0) at += extent;
                    while (at >= extent) at -= extent;
                    break;
                  case PaddingMode::reflect:
                    if (at < 0) at = -at;
                    if (at >= extent) at = extent - 1 - (at - (extent - 1));
                    break;
                  case PaddingMode::replicate: at = std::clamp(at, 0, extent - 1); break;
                }
                from[d] = at;
              }
              const std::size_t inside = ((n * in + o / out_group * in_group + c) * count(image)) + flat(from, image),
                                outside = (n * outs + o) * count(out) + flat(to, out),
                                weight = (o * in_group + c) * count(kernel) + flat(k, kernel);
              const std::size_t to_y = of.transposed ? inside : outside, at_x = of.transposed ? outside : inside;
              y[to_y] += x[at_x] * w[weight];
              dx[at_x] += g[to_y] * w[weight];
              dw[weight] += g[to_y] * x[at_x];
            });
          });
  }
};

template <detail::ConvolutionKind kind, class T>
void check_kind(const Case& of, double tolerance) {
  DefaultDevice device;
  const detail::ConvolutionCall call{"convolution", of.dims, kind};
  const auto x = weft_test::tensor_of<T>(device, of.x, weft_test::waves(of.x.size())),
             w = weft_test::tensor_of<T>(device, of.w, weft_test::waves(of.w.size(), 1));
  const auto y = detail::convolution<kind>(call, of.options, x, w);
  const auto g = weft_test::tensor_of<T>(device, y.shape(), weft_test::waves(y.size(), 2));
  const Plain plain(of, y.shape(), weft_test::numbers_of(x), weft_test::numbers_of(w), weft_test::numbers_of(g));
  const auto is = [&](const auto& tensor, const std::vector<double>& wanted) {
    CHECK(weft_test::difference(weft_test::numbers_of(tensor), wanted) < tolerance);
  };
  CAPTURE(of.x.text() + " by " + of.w.text());
  is(y, plain.y);
  is(detail::convolve_input_gradient<kind, std::remove_const_t<decltype(x)>>(call, of.x, w, g, of.options), plain.dx);
  is(detail::convolve_weight_gradient<kind, T>(call, x, of.w, g, of.options), plain.dw);
}
template <class T>
void check_convolution(const Case& of, double tolerance) {
  using detail::ConvolutionKind;
  if (of.depthwise) check_kind<ConvolutionKind::depthwise, T>(of, tolerance);
  else if (of.transposed) check_kind<ConvolutionKind::transposed, T>(of, tolerance);
  else check_kind<ConvolutionKind::plain, T>(of, tolerance);
}

/// A convolution of one to three dims with random options, which fit.
Case random_case(std::mt19937& random) {
  const auto below = [&](std::size_t n) { return std::size_t(random() % n); };
  for (;;) {
    const std::size_t kind = below(3), groups = kind == 1 ? 1 + below(4) : 1 + below(3);
    Case of{.dims = 1 + below(3), .x = {}, .w = {}, .options = {}, .depthwise = kind == 1, .transposed = kind == 2};
    of.x = Shape::of_rank(of.dims + 2);
    of.w = Shape::of_rank(of.dims + 2);
    const std::size_t in = of.depthwise ? groups : groups * (1 + below(3)), out = of.depthwise ? groups : groups * (1 + below(3));
    of.x[0] = 1 + below(2);
    of.x[1] = of.transposed ? out : in;
    of.w[0] = out;
    of.w[1] = in / groups;
    of.options.groups = of.depthwise ? 1 : groups;
    of.options.mode = of.transposed ? PaddingMode::zeros : static_cast<PaddingMode>(below(4));
    std::vector<std::size_t> stride, dilation, before, after, more;
    bool fits = true;
    for (std::size_t d = 0; d < of.dims; ++d) {
      const std::size_t extent = of.x[d + 2] = 1 + below(7), kernel = of.w[d + 2] = 1 + below(3);
      stride.push_back(1 + below(3));
      dilation.push_back(1 + below(2));
      before.push_back(below(3));
      after.push_back(below(4));
      more.push_back(below(stride.back()));
      const std::size_t reach = (kernel - 1) * dilation.back() + 1, paddings = before.back() + after.back();
      if (of.transposed) fits = fits && (extent - 1) * stride.back() + reach + more.back() > paddings;
      else fits = fits && extent + paddings >= reach;
      if (of.options.mode == PaddingMode::reflect) fits = fits && std::max(before.back(), after.back()) < extent;
    }
    const auto per_dim = [&](const std::vector<std::size_t>& all) {
      return all.size() == 1 ? PerDim(all[0]) : all.size() == 2 ? PerDim{all[0], all[1]} : PerDim{all[0], all[1], all[2]};
    };
    of.options.stride = per_dim(stride);
    of.options.dilation = per_dim(dilation);
    of.options.padding = per_dim(before);
    of.options.padding_after = per_dim(after);
    if (of.transposed) of.options.output_padding = per_dim(more);
    if (fits) return of;
  }
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

TEST_CASE("convolutions in three and one dims, over dp and tp") {
  const auto make = [](const auto& context) { return Fields(context); };
  CHECK(testing::check_layer(make, {2, 2, 2, 3, 3}).compared > 100);
  CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(2, make, {4, 2, 2, 3, 3}).compared > 100);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, {2, 2, 2, 3, 3}).compared > 100);
}

TEST_CASE("convolutions against plain loops") {
  for (const Case& of :
       {Case{2, {2, 3, 9, 8}, {5, 3, 3, 3}, {.padding = 1}}, Case{2, {1, 1, 7, 6}, {4, 1, 5, 2}, {.stride = 2, .padding = 2}},
        Case{2, {2, 16, 7, 7}, {32, 16, 1, 1}, {}}, Case{2, {2, 16, 8, 8}, {16, 16, 1, 1}, {.stride = 2}},
        Case{2, {1, 2, 5, 5}, {3, 2, 5, 5}, {.stride = 3, .padding = 4}},
        Case{2, {2, 16, 6, 7}, {16, 1, 3, 3}, {.padding = 1}, true}, Case{2, {1, 5, 6, 7}, {5, 1, 3, 3}, {.stride = 2}, true},
        Case{3, {1, 16, 4, 6, 5}, {16, 16, 3, 3, 3}, {.padding = 1}},
        Case{3, {1, 16, 2, 3, 4}, {16, 16, 2, 2, 2}, {.stride = 2}, false, true},
        Case{1, {2, 16, 33}, {32, 8, 5}, {.padding = 4, .dilation = 2, .groups = 2}}}) {
    check_convolution<double>(of, 1e-13);
    check_convolution<float>(of, 1e-5);
    check_convolution<bfloat16>(of, 2e-2);
  }
  check_convolution<float16>({2, {2, 3, 6, 5}, {2, 3, 3, 3}, {.padding = 1}}, 5e-3);
}

TEST_CASE("random convolutions of one to three dims against plain loops") {
  std::mt19937 random(34);
  for (int i = 0; i < 300; ++i) {
    const Case of = random_case(random);
    check_convolution<double>(of, 1e-13);
    check_convolution<float>(of, 1e-5);
    if (i < 100) check_convolution<bfloat16>(of, 3e-2);
  }
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
  static_assert(
      std::is_same_v<decltype(conv_transpose2d(std::declval<Samples>(), std::declval<Rows>())), Hidden> &&
      std::is_same_v<decltype(conv_transpose2d(std::declval<Hidden>(), std::declval<Columns>())), F<Shard<dp, 0>, Partial<tp>>>);
  static_assert(!detail::kind_fits<detail::ConvolutionKind::plain, F<Shard<tp, 2>>, F<Replicated<tp>>> &&
                !detail::kind_fits<detail::ConvolutionKind::transposed, F<Shard<tp, 4>>, F<Replicated<tp>>> &&
                !detail::kind_fits<detail::ConvolutionKind::depthwise, F<Shard<tp, 3>>, F<Shard<tp, 0>>> &&
                !detail::kind_fits<detail::ConvolutionKind::depthwise, F<Shard<tp, 3>>, F<Replicated<tp>>>);
  static_assert(std::is_same_v<decltype(relu(conv3d(detail::AlreadyRefused(), std::declval<F<>>(), {.padding = 1}))),
                               detail::AlreadyRefused>);
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
  const std::string by = "weft: conv2d([2, 3, 8, 8], [4, 3, 3, 3]): ";
  CHECK(refusal([&] { conv2d(x, w, {.groups = 2}); }) == by + "3 channels and weights of 4 are not groups(2) of equal size");
  CHECK(refusal([&] {
          conv2d(x, w, {.stride = {1, 2, 1}});
        }) == by + "an option of 3 numbers for images of 2 dims: give one for each dim, or one for all");
  CHECK(refusal([&] {
          conv2d(x, w, {.stride = {1, 2}, .padding = {0, 1}, .dilation = 5, .padding_after = 0});
        }) ==
        by + "a kernel of 3 x 3 with stride 1 x 2 and padding 0 x 1 (behind the last: 0), dilation 5 does not fit into an image "
             "of 8 x 8");
  CHECK(refusal([&] { conv2d(x, w, {.padding = -1}); }).find("does not fit into an image of 8 x 8") != std::string::npos);
  CHECK(refusal([&] { conv2d(x, w, {.padding = 8, .mode = PaddingMode::reflect}); }) ==
        by + "the padding of a kernel of 3 x 3 with stride 1 and padding 8 has no elements to copy in an image of 8 x 8; "
             "PaddingMode::reflect takes less than the extent");
  CHECK(refusal([&] { conv2d(relabel<F<Replicated<tp>>>(x), relabel<F<Shard<tp, 0>>>(w), {.groups = 3}); }) ==
        by + "groups(3) of channels that an axis cuts: gather them first; depthwise_conv1d to 3d take cut channels");
  CHECK(refusal([&] {
          depthwise_conv2d(x, F<>(device, {3, 1, 3, 3}), {.groups = 3});
        }) == "weft: depthwise_conv2d([2, 3, 8, 8], [3, 1, 3, 3]): groups(3), and each channel is a group: leave them out");
  CHECK(refusal([&] {
          conv3d(F<>(device, {2, 3, 8}), w);
        }) ==
        "weft: conv3d([2, 3, 8], [4, 3, 3, 3]): expected [samples, channels, depth, height, width] and [out, in, kernel depth, "
        "kernel height, kernel width]");
  const F<> back(device, {3, 4, 3, 3});
  CHECK(conv_transpose2d(x, back, {.stride = 2, .padding = 1, .output_padding = 1}).shape() == Shape{2, 4, 16, 16});
  CHECK(refusal([&] { conv_transpose2d(x, back, {.output_padding = 1}); }) ==
        "weft: conv_transpose2d([2, 3, 8, 8], [3, 4, 3, 3]): a kernel of 3 x 3 with stride 1 and padding 0 and output_padding 1 "
        "give no image from 8 elements; output_padding is less than the stride");
  CHECK(refusal([&] { conv_transpose2d(x, back, {.padding = 1, .mode = PaddingMode::periodic}); }) ==
        "weft: conv_transpose2d([2, 3, 8, 8], [3, 4, 3, 3]): its padding leaves outputs out: the mode is zeros");
  CHECK(refusal([&] { avg_pool2d(x, {.kernel = {2, 3, 2}}); }).find("does not fit into an image of 8 x 8") != std::string::npos);
  CHECK(refusal([&] {
          max_pool2d(F<>(device, {2, 3}));
        }) == "weft: max_pool2d([2, 3]): expected [samples, channels, height, width]");
  CHECK(refusal([&] { avg_pool2d(x, {.kernel = 3, .padding = 2}); }) ==
        "weft: avg_pool2d([2, 3, 8, 8]): a window of 3 x 3 with padding 2 does not fit into an image of 8 x 8; the padding is at "
        "most half of the window");
  Rehearsal notes;  // memory is only addresses
  DefaultDevice rehearsed;
  rehearsed.rehearse(notes);
  const F<> largest(rehearsed, {1, 2, 65536, 32768});
  CHECK(avg_pool2d(largest).shape() == Shape{1, 2, 32768, 16384});
  CHECK(refusal([&] { max_pool2d(largest); }) ==
        "weft: max_pool2d([1, 2, 65536, 32768]): 2147483648 elements, and std::int32_t has places for 2147483647");
}
