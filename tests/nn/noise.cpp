// SPDX-License-Identifier: Apache-2.0
// Random numbers of a forward: Philox at the global element, the same over dp, tp and cp with rows and columns cut, other numbers
// for another path, seed or step, and mean and deviation.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <weft/core/philox.hpp>
#include <weft/nn/noise.hpp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, double>>;
using X = Tensor<double, Exec>;

Root root(DefaultDevice& device, std::uint64_t seed = 3, std::uint64_t step = 0) {
  detail::Environment environment;
  environment.seed = seed;
  environment.step = step;
  environment.rows = environment.length = 8;
  return Root(device, environment);
}
std::vector<double> normal(const Root& context, const std::string& name, const Shape& shape = {8, 6}) {
  return copy_to_host(Noise(context / name).normal(context, X(context.device(), shape)));
}

/// Noise of rows and of columns that tp cuts.
struct Noisy : Module<Noisy> {
  Noise first, second;
  explicit Noisy(const auto& context) : first(context / "first"), second(context / "second") {}
  auto forward(const auto& x) const {
    const auto cut = to<Shard<tp, 1>>(x * first.normal(x) + first.uniform(x));
    return to<Invariant<tp>>(cut * second.normal(cut) + second.uniform(cut));
  }
};
/// The same without an axis that cuts columns.
struct NoisyRows : Module<NoisyRows> {
  Noise noise;
  explicit NoisyRows(const auto& context) : noise(context / "noise") {}
  auto forward(const auto& x) const { return exp(x * noise.normal(x)) + noise.uniform(x); }
};

}  // namespace

TEST_CASE("noise is Philox at the element, of seed, path and step") {
  DefaultDevice device;
  const auto numbers = normal(root(device), "noise");
  const std::uint64_t key = key_of(std::uint64_t(3), site_of("noise"), std::uint64_t(0));
  for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == Philox::normal(key, i));
  const auto uniform = copy_to_host(Noise(root(device) / "noise").uniform(root(device), X(device, {8, 6})));
  for (std::size_t i = 0; i < uniform.size(); ++i) CHECK(uniform[i] == double(Philox::uniform(key, i)));
  CHECK(normal(root(device), "noise", {8, 2, 3}) == numbers);
  CHECK(normal(root(device), "other") != numbers);
  CHECK(normal(root(device, 4), "noise") != numbers);
  CHECK(normal(root(device, 3, 1), "noise") != numbers);
}

TEST_CASE("mean and deviation") {
  DefaultDevice device;
  const auto numbers = normal(root(device), "noise", {8, 4000});
  double sum = 0, squares = 0;
  for (const double value : numbers) sum += value, squares += value * value;
  const double n = double(numbers.size());
  CHECK(std::abs(sum / n) < 4 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1) < 4 * std::sqrt(2 / n));
}

TEST_CASE("noise of every layout is that of one rank") {
  const auto noisy = [](const auto& context) { return Noisy(context); };
  CHECK(testing::check_layer(noisy, {8, 6}).compared != 0);
  testing::check_layer_on<tp, Invariant<tp>>(2, noisy, {8, 6});
  const auto rows = [](const auto& context) { return NoisyRows(context); };
  testing::check_layer_on<dp>(2, rows, {8, 6});
  testing::check_layer_on<tp>(2, rows, {8, 6});
  testing::check_layer_on<cp>(2, rows, {8, 2, 3}, {.length = 4});
}

TEST_CASE("two sources under one path") {
  const auto twice = [](const auto& context) { return Sequential(NoisyRows(context), NoisyRows(context)); };
  CHECK_THROWS_WITH_AS(testing::check_layer(twice, {8, 6}),
                       doctest::Contains("two Noises under one path, noise (the layer, twice)"), Error);
}
