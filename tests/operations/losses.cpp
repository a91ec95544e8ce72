// SPDX-License-Identifier: Apache-2.0
// covers: weft/operations/losses.hpp
// Losses of samples against the C library in double, their gradients against finite differences, written forward-only, over dp
// and with classes that tp cuts; labels that are no class.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::Exec;

namespace {

using Root = Context<Compute<Exec, double>>;
template <class... P>
using D = Tensor<double, Exec, P...>;

template <class L>
double value(const L& loss) {
  return copy_to_host(loss.sum())[0];
}

struct Case {
  DefaultDevice device;
  Root context{device, detail::Environment()};
};

// The gradient of f(x) = value(loss(x).output) is the loss's second result.
template <class Loss>
void check_slope(Loss loss, const D<>& x) {
  const auto slope = weft_test::numbers_of(loss(x).saved);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x.data()[i], step = 1e-6;
    x.data()[i] = before + step;
    const double up = value(loss(x).output);
    x.data()[i] = before - step;
    const double down = value(loss(x).output);
    x.data()[i] = before;
    CHECK(slope[i] == doctest::Approx((up - down) / (2 * step)).epsilon(1e-6));
  }
}

/// A loss by a formula of x; its gradient g is scaled by the loss's gradient.
template <class F>
std::vector<double> gradient_of(F f, const D<>& x, double scale) {
  Case c;
  weft_test::Formula<F> layer(f);
  auto step = weft::forward(layer, c.context, x);
  D<> g(c.device, {1});
  g.data()[0] = scale;
  return weft_test::numbers_of(weft::backward(layer, c.context, std::move(step.saved), g));
}

}  // namespace

TEST_CASE("the losses and their slopes") {
  Case c;
  const auto x = weft_test::tensor_of<double>(c.device, {3, 4}, weft_test::waves(12, 0.2, 3));
  const auto y = weft_test::tensor_of<double>(c.device, {3, 4}, weft_test::waves(12, 2));
  const auto hard = weft_test::tensor_of<std::uint8_t>(c.device, {3, 4}, {1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0});
  const auto labels = weft_test::tensor_of<std::int64_t>(c.device, {3}, {3, 0, 2});
  double squares = 0, binary = 0, entropy = 0;
  const auto z = weft_test::numbers_of(x), t = weft_test::numbers_of(y), h = weft_test::numbers_of(hard),
             l = weft_test::numbers_of(labels);
  for (std::size_t i = 0; i < 12; ++i) {
    squares += (z[i] - t[i]) * (z[i] - t[i]) / 4;
    const double p = 1 / (1 + std::exp(-z[i]));
    binary -= (h[i] * std::log(p) + (1 - h[i]) * std::log(1 - p)) / 4;
  }
  for (std::size_t n = 0; n < 3; ++n) {
    double total = 0;
    for (std::size_t k = 0; k < 4; ++k) total += std::exp(z[4 * n + k]);
    entropy += std::log(total) - z[4 * n + std::size_t(l[n])];
  }
  CHECK(std::abs(value(mse(x, y).output) - squares) < 1e-13);
  CHECK(std::abs(value(bce_with_logits(x, hard).output) - binary) < 1e-13);
  CHECK(std::abs(value(cross_entropy(c.context, x, labels).output) - entropy) < 1e-13);
  check_slope([&](const auto& in) { return mse(in, y); }, x);
  check_slope([&](const auto& in) { return bce_with_logits(in, hard); }, x);
  check_slope([&](const auto& in) { return cross_entropy(c.context, in, labels); }, x);
  // Large logits overflow nothing.
  const auto large = weft_test::tensor_of<float>(c.device, {1, 2}, {1000, -1000});
  CHECK(value(bce_with_logits(large, weft_test::tensor_of<float>(c.device, {1, 2}, {1, 0})).output) == 0);
  CHECK(value(bce_with_logits(large, weft_test::tensor_of<float>(c.device, {1, 2}, {0, 1})).output) == 1000);
  CHECK(value(cross_entropy(c.context, large, weft_test::tensor_of<std::int32_t>(c.device, {1}, {1})).output) == 2000);
}

TEST_CASE("a loss in a forward: its gradient is scaled by the one that backward receives") {
  Case c;
  const auto x = weft_test::tensor_of<double>(c.device, {3, 4}, weft_test::waves(12, 0.2, 3));
  const auto labels = weft_test::tensor_of<std::int32_t>(c.device, {3}, {3, 0, 2});
  const auto slope = weft_test::numbers_of(cross_entropy(c.context, x, labels).saved);
  const auto seen = gradient_of(
      [&](const auto& in) {
        const auto ids = weft_test::constant_beside(in, labels);
        return cross_entropy(in, ids);
      },
      x, 0.25);
  for (std::size_t i = 0; i < 12; ++i) CHECK(seen[i] == doctest::Approx(0.25 * slope[i]).epsilon(1e-14));
  // Both operands of a squared error have a gradient: of x against 2 x it is (-1)(-1) 2 x / 4.
  const auto both = gradient_of([](const auto& in) { return mse(in, in * 2); }, x, 1);
  for (std::size_t i = 0; i < 12; ++i) CHECK(both[i] == doctest::Approx(2 * x.data()[i] / 4).epsilon(1e-12));
  const auto mask = [](const auto& in) { return bce_with_logits(in, greater(in, 0).detach()); };
  const auto one_sided = gradient_of(mask, x, 1);
  for (std::size_t i = 0; i < 12; ++i)
    CHECK(one_sided[i] == doctest::Approx((1 / (1 + std::exp(-x.data()[i])) - (x.data()[i] > 0 ? 1 : 0)) / 4).epsilon(1e-12));
  // So have the targets of a binary cross-entropy: of z = x against y = 0.25 x it is (σ(x) - 0.25 x) / 4 - 0.25 x / 4.
  const auto soft = gradient_of([](const auto& in) { return bce_with_logits(in, in * 0.25); }, x, 0.5);
  for (std::size_t i = 0; i < 12; ++i) {
    const double z = x.data()[i];
    CHECK(soft[i] == doctest::Approx(0.5 * (1 / (1 + std::exp(-z)) - 0.5 * z) / 4).epsilon(1e-12));
  }
  // Targets of 64 bits; negative ones are ignored.
  const auto counted = gradient_of(
      [&](const auto& in) {
        const auto ids = weft_test::constant_beside(in, weft_test::tensor_of<std::int64_t>(c.device, {3}, {4, -1, 0}));
        return sum_losses(sum<1>(in * in), ids);
      },
      x, 1);
  for (std::size_t i = 0; i < 12; ++i) CHECK(counted[i] == doctest::Approx(i / 4 == 1 ? 0 : 2 * x.data()[i]).epsilon(1e-13));
}

TEST_CASE("losses with weights beside each other") {
  Case c;
  const auto x = weft_test::tensor_of<double>(c.device, {3, 4}, weft_test::waves(12, 0.2, 3));
  const auto y = weft_test::tensor_of<double>(c.device, {3, 4}, weft_test::waves(12, 2));
  const auto two = [&](const auto& in) {
    const auto other = weft_test::constant_beside(in, y);
    return 0.5 * mse(in, other) + sum_losses(sum<1>(square(in))) * 3 - mse(in * 2, other) + -mse(in, in * 3);
  };
  double want = 0;
  std::vector<double> slope;
  for (std::size_t i = 0; i < 12; ++i) {
    const double a = x.data()[i], b = y.data()[i];
    want += (0.5 * (a - b) * (a - b) - (2 * a - b) * (2 * a - b) - 4 * a * a) / 4 + 3 * a * a;
    slope.push_back((a - b - 4 * (2 * a - b) - 8 * a) / 4 + 6 * a);
  }
  weft_test::Formula<decltype(two)> layer(two);
  CHECK(value(weft::forward(layer, c.context, x).output) == doctest::Approx(want).epsilon(1e-13));
  const auto seen = gradient_of(two, x, 0.25);
  for (std::size_t i = 0; i < 12; ++i) CHECK(seen[i] == doctest::Approx(0.25 * slope[i]).epsilon(1e-12));
}

TEST_CASE("the losses over dp, and with classes that tp cuts, are those of one rank") {
  Case c;
  const Shape shape{4, 6};
  const auto x = weft_test::tensor_of<double>(c.device, shape, weft_test::waves(24, 0.2, 3)),
             y = weft_test::tensor_of<double>(c.device, shape, weft_test::waves(24, 2));
  const auto labels = weft_test::tensor_of<std::int32_t>(c.device, {4}, {5, 0, 2, 3});
  const double squares = value(mse(x, y).output), entropy = value(cross_entropy(c.context, x, labels).output);
  const auto slope = weft_test::numbers_of(cross_entropy(c.context, x, labels).saved);
  CHECK(
      run(RunOptions{.ranks = 2}, [&](World& world) {
        const std::size_t rank = std::size_t(world.communicator().rank());
        const auto near = [](double a, double b) { return std::abs(a - b) < 1e-12; };
        bool right = true;
        {
          const auto over = Context<Compute<Exec, double>>(world.device(), detail::Environment())
                                .with<Shard<dp, 0>>(dp{}, world.communicator());
          const auto mine = [&]<class T>(const Tensor<T, Exec>& whole, const Shape& part) {
            return Tensor<T, Exec, Shard<dp, 0>>(world.device(), part, whole.buffer(), rank * part.size());
          };
          const auto a = mine(x, {2, 6}), b = mine(y, {2, 6});
          static_assert(std::is_same_v<decltype(mse(a, b).output), LossSum<Exec, Partial<dp>>>);
          right = right && near(copy_to_host(to<Invariant<dp>>(over, mse(a, b).output.sum()))[0], squares);
          right = right &&
                  near(copy_to_host(to<Invariant<dp>>(over, cross_entropy(over, a, mine(labels, {2})).output.sum()))[0], entropy);
        }
        const auto inside =
            Context<Compute<Exec, double>>(world.device(), detail::Environment()).with<Invariant<tp>>(tp{}, world.communicator());
        const auto whole = to<Shard<tp, 1>>(inside, D<Invariant<tp>>(world.device(), shape, x.buffer()));
        const auto step =
            cross_entropy(inside, whole, Tensor<std::int32_t, Exec, Invariant<tp>>(world.device(), {4}, labels.buffer()));
        static_assert(std::is_same_v<std::remove_cvref_t<decltype(step.output)>, LossSum<Exec, Invariant<tp>>>);
        right = right && near(value(step.output), entropy);
        const auto part = weft_test::numbers_of(step.saved);
        for (std::size_t i = 0; i < part.size(); ++i) right = right && near(part[i], slope[i / 3 * 6 + rank * 3 + i % 3]);
        return right ? 0 : 1;
      }) == 0);
}

TEST_CASE("labels that are no class, and shapes") {
  Case c;
  const D<> x(c.device, {3, 4});
  const auto labelled = [&](std::vector<double> labels) {
    return [&, labels] { cross_entropy(c.context, x, weft_test::tensor_of<std::int64_t>(c.device, {labels.size()}, labels)); };
  };
  CHECK(weft_test::refusal_of<UsageError>(labelled({0, 4, 1})) ==
        "weft: cross_entropy: label 4 of sample 1 is not one of 4 classes, 0 to 3");
  CHECK(weft_test::refusal_of<UsageError>(labelled({0, 1, -1})) ==
        "weft: cross_entropy: label -1 of sample 2 is not one of 4 classes, 0 to 3");
  CHECK(weft_test::refusal_of<ShapeError>(labelled({0, 1})) ==
        "weft: cross_entropy([3, 4], [2]): expected logits [samples, classes] and labels [samples]");
  CHECK(weft_test::refusal_of<ShapeError>([&] {
          mse(x, D<>(c.device, {4, 3}));
        }) == "weft: mse([3, 4], [4, 3]): the shapes differ");
}
