// SPDX-License-Identifier: Apache-2.0
// Layers on ranks of two axes at once: dx and dy, tp and dx, dp and dx. A layer that is right along each axis and wrong along
// both is found.
#include <weft/testing/check_layer.hpp>

#include <string>

#include <doctest/doctest.h>

#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/parallel/domain_parallel.hpp>
#include <weft/weft.hpp>

using namespace weft;
using testing::check_layer_on;

namespace {

const Shape shape{2, 2, 8, 6};

struct Images : Module<Images> {
  Conv2d<Shard<tp, 0>> conv;
  GroupNorm<Shard<tp, 0>> norm;
  Conv2d<> out;
  explicit Images(const auto& at)
      : conv(at / "conv", 2, 4, 3, {.padding = 1}), norm(at / "norm", 2, 4), out(at / "out", 4, 2, 3, {.padding = 1}) {}
  auto forward(const auto& x) const { return out(to<Invariant<tp>>(tanh(norm(conv(to<Replicated<tp>>(x)))))); }
};
/// Channels that tp cuts between two convolutions: the second one takes them, and leaves terms of a sum.
struct Between : Module<Between> {
  Conv2d<Shard<tp, 0>> up;
  Conv2d<Shard<tp, 1>> down;
  explicit Between(const auto& at)
      : up(at / "up", 2, 4, 3, {.padding = 1}), down(at / "down", 4, 2, 3, {.padding = 2, .dilation = 2, .bias = false}) {}
  auto forward(const auto& x) const { return to<Invariant<tp>>(down(tanh(up(to<Replicated<tp>>(x))))); }
};
const auto between = [](const auto& at) { return Between(at / "between"); };
const auto images = [](const auto& at) { return Images(at / "images"); };

/// The last rank of both axes counts its pixels twice.
struct Corner : Primitive<Corner> {
  explicit Corner(const auto&) {}
  static double factor(const auto& context) {
    return context.size(dx{}) > 1 && context.rank(dx{}) == 1 && context.rank(dy{}) == 1 ? 2.0 : 1.0;
  }
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    return Result{scaled(x, factor(context)), Nothing()};
  }
  template <class Context, class G>
  auto backward(const Context& context, Nothing, const G& g) const {
    return scaled(g, factor(context));
  }
  template <class X>
  static X scaled(const X& x, double factor) {
    X y(x.device(), x.shape());
    auto values = copy_to_host(x);
    for (double& value : values) value *= factor;
    copy_from_host(y, std::span<const double>(values));
    return y;
  }
};

}  // namespace

TEST_CASE("layers over two axes equal one rank") {
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, images, shape).compared > 100);
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({4, 1}, images, shape).compared > 100);
  CHECK(check_layer_on<Invariant<tp>, Shard<dx, 2>>({2, 2}, images, shape).compared > 100);
  CHECK(check_layer_on<Shard<dp, 0>, Shard<dx, 3>>({2, 2}, images, shape).compared > 100);
}

TEST_CASE("a convolution whose input channels tp cuts equals one rank, beside dx and dy") {
  CHECK(check_layer_on<tp, Invariant<tp>>(2, between, shape).compared > 100);
  CHECK(check_layer_on<Invariant<tp>, Shard<dx, 2>>({2, 2}, between, shape).compared > 100);
  CHECK(check_layer_on<Invariant<tp>, Shard<dy, 3>>({4, 2}, between, shape).compared > 100);
  const auto biased = [](const auto& at) { return Conv2d<Shard<tp, 1>>(at / "conv", 4, 2, 3); };
  CHECK_THROWS_WITH_AS(testing::check_layer(biased, {2, 4, 8, 6}),
                       doctest::Contains("conv2d: an axis cuts the input channels, so the result is Partial and takes no bias"),
                       UsageError);
}

TEST_CASE("a fault that needs both axes is found") {
  const auto corner = [](const auto& at) { return Corner(at); };
  CHECK(check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 1}, corner, shape).error == 0);
  std::string text;
  try {
    (void)check_layer_on<Shard<dx, 2>, Shard<dy, 3>>({2, 2}, corner, shape);
  } catch (const Error& error) {
    text = error.what();
  }
  CHECK_MESSAGE(text.find("check_layer: dx(2), dy(2) against one rank: the output is off by") != std::string::npos, text);
}
