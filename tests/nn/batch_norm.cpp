// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/batch_norm.hpp weft/kernels/batch_norm.hpp
// Batch normalisation: derivatives, one rank over dp and with channels that tp cuts, the same bits under Reproducible however the
// samples are cut, running statistics and evaluation.

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include <weft/context/axes_in_force.hpp>
#include <weft/kernels/batch_norm.hpp>
#include <weft/nn/batch_norm.hpp>
#include <weft/operations/functions.hpp>
#include <weft/pipeline/stages.hpp>

#include "support/formula.hpp"

using namespace weft;
using weft_test::Exec;

namespace {

/// In a forward, together with an operation.
struct Normed : Module<Normed> {
  BatchNorm<> norm;
  explicit Normed(const auto& context) : norm(context / "norm", 3, {.epsilon = 1e-3}) {}
  auto forward(const auto& x) const { return tanh(norm(x * x)) * x; }
};
/// Channels that tp cuts.
struct Cut : Module<Cut> {
  BatchNorm<Shard<tp, 0>> norm;
  explicit Cut(const auto& context) : norm(context / "norm", 4) {}
  auto forward(const auto& x) const { return square(norm(to<Shard<tp, 1>>(x))); }
};

struct Outcome {
  std::vector<double> y, dx, gain, shift, running;
  bool operator==(const Outcome&) const = default;
};

// One step of a norm over [8, 3, 5] in T; samples [first, first + count) here.
template <class T, class X, class Context>
Outcome step(const Context& root, std::size_t first, std::size_t count) {
  std::vector<std::shared_ptr<detail::StepBuffer>> buffers;
  Context context = root;
  context.construction.buffers = &buffers;
  BatchNorm<> norm(context, 3, {.momentum = 0.25});
  const auto part = [&](double phase) {
    const auto all = weft_test::waves(8 * 15, phase, 3);
    return weft_test::tensor_of<T>(context.device(), {count, 3, 5},
                                   {all.begin() + long(first) * 15, all.begin() + long(first + count) * 15});
  };
  const X x = relabel<X>(part(0.5)), g = relabel<X>(part(2));
  auto made = norm.forward(context, x);
  auto split = norm.backward_input(context, std::move(made.saved), g);
  detail::renew(detail::AxesInForce(context), buffers);
  using S = Tensor<double, Exec, Invariant<dp>>;
  const auto home = [&](const auto& sum) {
    if constexpr (Context::has(dp{})) return weft_test::numbers_of(to_layout_of<S>(context, sum));
    else return weft_test::numbers_of(sum);
  };
  return {weft_test::numbers_of(made.output), weft_test::numbers_of(split.input_gradient), home(split.deferred.first),
          home(split.deferred.second), norm.running()};
}
template <class T>
Outcome alone(bool separates) {
  DefaultDevice device;
  detail::Environment environment;
  environment.separates_terms = separates;
  const Context<Compute<Exec, T>> context(device, environment);
  return step<T, Tensor<T, Exec>>(context, 0, 8);
}
// The difference of `ranks` ranks from one, 0 if every bit is the same.
template <class T>
double difference_over(int ranks, bool separates) {
  const Outcome one = alone<T>(separates);
  double worst = 0;
  std::vector<double> of(std::size_t(ranks), -1.0);
  CHECK(run(RunOptions{.ranks = ranks}, [&](World& world) {
          const std::size_t rank = std::size_t(world.communicator().rank()), count = 8 / std::size_t(ranks);
          detail::Environment environment;
          environment.separates_terms = separates;
          const auto context =
              Context<Compute<Exec, T>>(world.device(), environment).template with<Shard<dp, 0>>(dp{}, world.communicator());
          const Outcome here = step<T, Tensor<T, Exec, Shard<dp, 0>>>(context, rank * count, count);
          double seen = 0;
          const auto compare = [&](const std::vector<double>& part, const std::vector<double>& whole, std::size_t at) {
            for (std::size_t i = 0; i < part.size(); ++i) seen = std::max(seen, std::abs(part[i] - whole[at + i]));
          };
          compare(here.y, one.y, rank * count * 15);
          compare(here.dx, one.dx, rank * count * 15);
          compare(here.gain, one.gain, 0);
          compare(here.shift, one.shift, 0);
          compare(here.running, one.running, 0);
          of[rank] = seen;
          return 0;
        }) == 0);
  for (const double seen : of) {
    CHECK(seen >= 0);
    worst = std::max(worst, seen);
  }
  return worst;
}

}  // namespace

TEST_CASE("a norm in a forward is its derivative, and one rank over dp and tp") {
  const auto make = [](const auto& context) { return Normed(context); };
  CHECK(testing::check_layer(make, {4, 3, 2, 3}).compared > 20);
  CHECK(testing::check_layer(make, {6, 3}).compared > 20);
  CHECK(testing::check_layer(make, {2, 3, 2, 1, 3}).compared > 20);
  for (const int ranks : {2, 4}) CHECK(testing::check_layer_on<dp, Shard<dp, 0>>(ranks, make, {4, 3, 2, 3}).compared > 20);
  CHECK(testing::check_layer_on<tp>(2, make, {4, 3, 2}).compared > 20);
  const auto cut = [](const auto& context) { return Cut(context); };
  CHECK(testing::check_layer(cut, {4, 4, 3}).compared > 20);
  CHECK(testing::check_layer_on<tp, Invariant<tp>>(2, cut, {4, 4, 3}).compared > 20);
}

TEST_CASE("statistics over dp are one rank's, under Reproducible bit by bit") {
  for (const int ranks : {2, 4}) {
    CHECK(difference_over<double>(ranks, false) < 1e-12);
    CHECK(difference_over<double>(ranks, true) == 0);
    CHECK(difference_over<float>(ranks, true) == 0);
  }
  CHECK(weft_test::difference(alone<double>(true).y, alone<double>(false).y) < 1e-14);
  CHECK(weft_test::difference(alone<float>(false).y, alone<double>(false).y) < 1e-5);
}

TEST_CASE("running statistics take their share of a step, and evaluation uses them") {
  DefaultDevice device;
  std::vector<std::shared_ptr<detail::StepBuffer>> buffers;
  Context<Compute<Exec, double>> context(device, detail::Environment());
  context.construction.buffers = &buffers;
  BatchNorm<> norm(context, 2, {.epsilon = 0, .momentum = 0.5});
  CHECK(norm.running() == std::vector<double>{0, 0, 1, 1});
  const auto x = weft_test::tensor_of<double>(device, {2, 2}, {1, 10, 5, 30});
  auto made = norm.forward(context, x);
  CHECK(weft_test::numbers_of(made.output) == std::vector<double>{-1, -1, 1, 1});
  detail::renew(detail::AxesInForce(context), buffers);
  CHECK(norm.running() == std::vector<double>{0, 0, 1, 1});  // a forward without backward leaves them
  (void)norm.backward_input(context, std::move(made.saved), x);
  detail::renew(detail::AxesInForce(context), buffers);
  CHECK(norm.running() == std::vector<double>{1.5, 10, 4.5, 100.5});  // means 3 and 20, unbiased variances 8 and 200
  context.env.training = false;
  auto evaluated = norm.forward(context, x);
  CHECK(weft_test::numbers_of(evaluated.output)[0] == doctest::Approx((1 - 1.5) / std::sqrt(4.5)));
  const auto dx = weft_test::numbers_of(norm.backward_input(context, std::move(evaluated.saved), x).input_gradient);
  CHECK(dx[1] == doctest::Approx(10 / std::sqrt(100.5)));  // the statistics are constants
  detail::renew(detail::AxesInForce(context), buffers);
  CHECK(norm.running() == std::vector<double>{1.5, 10, 4.5, 100.5});
}

TEST_CASE("shapes that a norm refuses") {
  DefaultDevice device;
  const Context<Compute<Exec, float>> context(device, detail::Environment());
  const BatchNorm norm(context, 3);
  const auto refusal = [&](const Shape& shape) {
    return weft_test::refusal_of<ShapeError>([&] { norm.forward(context, Tensor<float, Exec>(device, shape)); });
  };
  CHECK(refusal({2, 4, 5}) == "weft: BatchNorm([2, 4, 5]): expected [samples, channels, ...] of 3 channels");
  CHECK(refusal({3}) == "weft: BatchNorm([3]): expected [samples, channels, ...] of 3 channels");
  CHECK(refusal({0, 3, 5}) == "weft: BatchNorm([0, 3, 5]): there are no elements");
}

TEST_CASE("a batch-invariant training has no statistics of batches") {
  DefaultDevice device;
  device.make_batch_invariant();
  const detail::Environment environment;
  const Context<Compute<Exec, float>> context(device, environment);
  CHECK(weft_test::refusal_of<UsageError>([&] {
          step<float, Tensor<float, Exec>>(context, 0, 8);
        }).starts_with("weft: BatchNorm: numerics.batch_invariant: "));
}
