// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/group_norm.hpp weft/kernels/group_norm.hpp weft/nn/convolution.hpp
// GroupNorm, InstanceNorm and the layers of convolutions: values in plain loops, derivatives, one rank over dp and with channels
// that tp cuts, initial values, refusals.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <weft/kernels/group_norm.hpp>
#include <weft/nn/convolution.hpp>
#include <weft/nn/group_norm.hpp>
#include <weft/operations/functions.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::Exec;

namespace {

using F = Tensor<float, Exec>;

/// A block of a U-Net in three dims.
struct Block : Module<Block> {
  Conv3d<> down;
  GroupNorm<> norm;
  ConvTranspose3d<> up;
  InstanceNorm<> instance;
  explicit Block(const auto& context)
      : down(context / "down", 2, 6, {2, 1, 2}, {.stride = {2, 1, 1}, .padding = {0, 0, 1}, .mode = PaddingMode::periodic}),
        norm(context / "norm", 3, 6, {.epsilon = 1e-3}),
        up(context / "up", 6, 2, {2, 1, 1}, {.stride = {2, 1, 1}, .groups = 2}),
        instance(context / "instance", 2, {.affine = true}) {}
  auto forward(const auto& x) const {
    const auto inside = tanh(norm(down(x)));
    return std::tuple(instance(exp(up(inside))), inside * inside);
  }
};
/// Channels that tp cuts.
struct Cut : Module<Cut> {
  Conv2d<Shard<tp, 0>> wide;
  GroupNorm<Shard<tp, 0>> norm;
  InstanceNorm<Shard<tp, 0>> bare;
  ConvTranspose1d<Shard<tp, 0>> back;
  explicit Cut(const auto& context)
      : wide(context / "wide", 2, 8, 2),
        norm(context / "norm", 4, 8),
        bare(context / "bare", 8),
        back(context / "back", 2, 4, 2) {}
  auto forward(const auto& x) const {
    const auto inside = to<Replicated<tp>>(x);
    const auto y = norm(wide(inside));
    return std::tuple(square(y), bare(y * y), back(flatten<2, 3>(inside)));
  }
};

// In plain loops, for three groups of two channels; without parameters, so that a context's scalar does not matter.
template <class T>
void check_values(double tolerance) {
  DefaultDevice device;
  const Context<Compute<Exec, T>> context(device, detail::Environment());
  const auto x = weft_test::tensor_of<T>(device, {2, 6, 4, 1, 5}, weft_test::waves(240, 0.5, 3));
  const auto numbers = weft_test::numbers_of(x);
  for (const std::size_t groups : {1, 3, 6}) {
    const GroupNorm<> norm(context, groups, 6, {.epsilon = 1e-2, .affine = false});
    const std::size_t each = 6 / groups * 20;
    std::vector<double> wanted;
    for (std::size_t row = 0; row < 2 * groups; ++row) {
      double mean = 0, variance = 0;
      for (std::size_t i = 0; i < each; ++i) mean += numbers[row * each + i] / double(each);
      for (std::size_t i = 0; i < each; ++i) variance += std::pow(numbers[row * each + i] - mean, 2) / double(each);
      for (std::size_t i = 0; i < each; ++i) wanted.push_back((numbers[row * each + i] - mean) / std::sqrt(variance + 1e-2));
    }
    CHECK(weft_test::difference(weft_test::numbers_of(norm.forward(context, x).output), wanted) < tolerance);
  }
}

}  // namespace

TEST_CASE("layers of convolutions and norms of samples are their derivatives, and one rank over dp and tp") {
  const auto make = [](const auto& context) { return Block(context); };
  CHECK(testing::check_layer(make, {2, 2, 2, 3, 2}).compared > 60);
  CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(2, make, {4, 2, 2, 3, 2}).compared > 60);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, make, {2, 2, 2, 3, 2}).compared > 60);
  const auto cut = [](const auto& context) { return Cut(context); };
  CHECK(testing::check_layer(cut, {2, 2, 3, 4}).compared > 60);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, cut, {2, 2, 3, 4}).compared > 60);
}

TEST_CASE("norms of samples against plain loops") {
  check_values<double>(1e-13);
  check_values<float>(1e-5);
  check_values<bfloat16>(1e-2);
}

TEST_CASE("parameters of layers of convolutions are PyTorch's") {
  DefaultDevice device;
  const Context<Compute<Exec, float>> context(device, detail::Environment());
  const Conv2d<> conv(context, 4, 6, {3, 2}, {.groups = 2});
  CHECK(conv.weight.state().global() == Shape{6, 2, 3, 2});
  const ConvTranspose2d<> back(context, 4, 6, {3, 2}, {.groups = 2, .bias = false});
  CHECK(back.weight.state().global() == Shape{4, 3, 3, 2});
  CHECK_FALSE(back.bias.has_value());
  const F x(device, {1, 4, 3, 2});
  const auto largest = [](const auto& parameter, const F& beside) {
    double most = 0;
    for (const double value : weft_test::numbers_of(parameter.for_operand(beside))) most = std::max(most, std::abs(value));
    return most;
  };
  const double bound = 1 / std::sqrt(12.0), of_transposed = 1 / std::sqrt(18.0);  // inputs of an output
  CHECK((largest(conv.weight, x) <= bound && largest(conv.weight, x) > 0.9 * bound && largest(*conv.bias, x) <= bound));
  CHECK((largest(back.weight, x) <= of_transposed && largest(back.weight, x) > 0.9 * of_transposed));
}

TEST_CASE("channels that these layers refuse") {
  DefaultDevice device;
  const Context<Compute<Exec, float>> context(device, detail::Environment());
  const auto refusal = [](auto&& act) { return weft_test::refusal_of<ShapeError>(act); };
  CHECK(refusal([&] { GroupNorm<>(context, 4, 6); }) == "weft: GroupNorm: channels(6) are not groups(4) of equal size");
  CHECK(refusal([&] {
          InstanceNorm<>(context, 3).forward(context, F(device, {2, 4, 5}));
        }) == "weft: InstanceNorm([2, 4, 5]): expected [samples, channels, ...] of 3 channels");
  CHECK(refusal([&] { Conv2d<>(context, 4, 6, 3, {.groups = 4}); }) ==
        "weft: conv2d: channels 4 to 6 are not groups(4) of equal size, or the kernel has 1 numbers for 2 dims");
}
