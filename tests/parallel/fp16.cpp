// SPDX-License-Identifier: Apache-2.0
// A GPT in float16 with a dynamic loss scale learns like one in float, in several layouts. Every rank skips the same steps, and
// the scale is reduced and raised as documented.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support/learning.hpp"

using namespace weft;
using namespace weft_test::learning;

TEST_CASE("a GPT in float16 learns like one in float") {
  const Curve full = on_one_rank<float>(), half = on_one_rank<float16>();
  CHECK(full.scales.empty());
  CHECK(half.losses.back() < 0.5 * half.losses.front());
  CHECK(std::abs(half.losses.front() / full.losses.front() - 1) < 2e-4);
  CHECK(std::abs(half.norms.front() / full.norms.front() - 1) < 5e-3);
  CHECK(distance(half, full) < 0.02);
  CHECK(half.skipped == std::vector<bool>(steps, false));

  // A scale that is a power of two changes no bit in float.
  Curve scaled = on_one_rank<float>({.numerics = {.loss_scale = LossScaleOptions{.initial = 1024, .interval = 5}}});
  CHECK(scaled.losses == full.losses);
  CHECK(scaled.norms == full.norms);
  CHECK(scaled.scales[4] == 2048);
  CHECK(scaled.scales.back() == 1024 * 64);

  // Far too large: steps are skipped until the scale fits, without any update.
  const Curve high = on_one_rank<float16>({.numerics = {.loss_scale = LossScaleOptions{.initial = 0x1p30, .largest = 0x1p30}}});
  int skipped = 0;
  while (high.skipped[std::size_t(skipped)]) {
    CHECK(high.losses[std::size_t(skipped)] == high.losses[0]);
    CHECK(high.scales[std::size_t(skipped)] == std::ldexp(1.0, 29 - skipped));
    ++skipped;
  }
  CHECK(skipped >= 3);
  CHECK(skipped <= 20);
  CHECK(std::abs(high.norms[std::size_t(skipped)] / full.norms.front() - 1) < 5e-3);
}

TEST_CASE("every rank skips the step that one rank's gradient spoils") {
  const Curve full = on_one_rank<float>();
  using Parallel = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<float16>>>>;
  for (const Degrees& degrees : {Degrees{.tp = 2}, Degrees{.pp = 2}}) {
    std::vector<Curve> curves(4);
    CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, degrees);
            Parallel model(mesh, config);
            curves[std::size_t(world.rank())] = train(model, batch(std::size_t(mesh.rank(dp{})), 2, 2), 7);
          }) == 0);
    INFO("tp(" << degrees.tp << ") * pp(" << degrees.pp << ")");
    for (const Curve& curve : curves) {
      CHECK(curve.losses == curves[0].losses);
      CHECK(curve.skipped == curves[0].skipped);
      CHECK(curve.scales == curves[0].scales);
    }
    std::vector<bool> expected(steps, false);
    expected[7] = true;
    CHECK(curves[0].skipped == expected);
    CHECK(curves[0].scales[6] == 65536);
    CHECK(curves[0].scales[7] == 32768);
    CHECK(curves[0].losses[8] == curves[0].losses[7]);  // the parameters are unchanged
    CHECK(std::abs(curves[0].losses.front() / full.losses.front() - 1) < 2e-4);
    CHECK(curves[0].losses.back() < 0.5 * curves[0].losses.front());
  }
}

TEST_CASE("every stage of ZeRO skips the steps that one rank skips") {
  const ModelOptions large{.numerics = {.loss_scale = LossScaleOptions{.initial = 0x1p24, .largest = 0x1p24}}};
  const Curve one = on_one_rank<float16>(large);
  for (const int stage : {1, 2, 3})
    CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            ModelOptions options = large;
            options.shard.stage = stage;
            FullyShardedDataParallel<models::BasicGpt<float16>> model(mesh, config, options);
            CHECK(train(model, batch(std::size_t(world.rank()), 2, 2)).skipped == one.skipped);
          }) == 0);
}

TEST_CASE("an invalid loss scale is refused with its requirements") {
  CHECK_THROWS_AS(LossScale({.initial = 0}), UsageError);
  CHECK_THROWS_AS(LossScale({.backoff = 2}), UsageError);
  CHECK_THROWS_AS(LossScale({.initial = 0x1p30}), UsageError);
  CHECK_NOTHROW(LossScale({.growth = 1}));
  optim::LossScale scale({.initial = 4, .interval = 2, .smallest = 1, .largest = 8});
  for (int i = 0; i < 6; ++i) scale.update(false);
  CHECK(scale.value() == 8);
  for (int i = 0; i < 6; ++i) scale.update(true);
  CHECK(scale.value() == 1);
}
