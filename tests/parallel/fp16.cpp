// SPDX-License-Identifier: Apache-2.0
// A GPT in float16 with a dynamic loss scale learns like one in float, in several layouts; every rank skips the same steps, and
// the scale backs off and grows as it says.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <weft/weft.hpp>

using namespace weft;

namespace {

constexpr std::size_t sequences = 8, length = 16;
constexpr int steps = 30;
const nn::GptConfig config{.vocabulary = 50, .layers = 4, .width = 64, .heads = 4, .kv_heads = 2, .sequence = length};

Batch make_batch(std::size_t share, std::size_t shares, std::size_t micro_batches) {
  Batch batch;
  batch.sequences = sequences / shares;
  batch.length = length;
  batch.micro_batches = micro_batches;
  batch.first_sequence = share * batch.sequences;
  for (std::size_t i = 0; i < batch.sequences * length; ++i) {
    const std::size_t index = batch.first_sequence * length + i;
    batch.tokens.push_back(std::int32_t(key_of(index) % 50));
    batch.targets.push_back(std::int32_t(key_of(index + 1) % 50));
  }
  return batch;
}

struct Curve {
  std::vector<double> losses, norms, scales;
  std::vector<bool> skipped;
};

/// `spoil`: step whose gradients one rank ruins after they were computed.
template <class Model>
Curve train(Model& model, const Batch& batch, int spoil = -1) {
  optim::AdamW optimizer(model, {.learning_rate = 3e-3, .clip = 1});
  Curve curve;
  for (int step = 0; step < steps; ++step) {
    curve.losses.push_back(model.train_step(batch));
    if (step == spoil && model.communicator().rank() == model.communicator().size() - 1) {
      ParameterState* last = nullptr;
      model.for_each_state([&](ParameterState& state) { last = &state; });
      static_cast<float*>(last->gradient.get())[0] = std::numeric_limits<float>::infinity();
    }
    const auto report = optimizer.step();
    curve.norms.push_back(report.gradient_norm);
    curve.skipped.push_back(report.skipped);
    if (model.loss_scale()) curve.scales.push_back(model.loss_scale()->value());
  }
  CHECK(optimizer.steps() == std::uint64_t(std::count(curve.skipped.begin(), curve.skipped.end(), false)));
  curve.losses.push_back(model.evaluate(batch));
  return curve;
}

template <class S>
Curve on_one_rank(const ModelOptions& options = {}) {
  DefaultDevice device;
  SingleDevice<nn::BasicGpt<S>> model(device, config, options);
  return train(model, make_batch(0, 1, 1));
}

double distance(const Curve& a, const Curve& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::max(1.0, b.losses[i]));
  return worst;
}

}  // namespace

TEST_CASE("a GPT in float16 learns like one in float") {
  const Curve full = on_one_rank<float>(), half = on_one_rank<float16>();
  CHECK(full.scales.empty());
  CHECK(half.losses.back() < 0.5 * half.losses.front());
  CHECK(std::abs(half.losses.front() / full.losses.front() - 1) < 2e-4);
  CHECK(std::abs(half.norms.front() / full.norms.front() - 1) < 5e-3);
  CHECK(distance(half, full) < 0.02);
  CHECK(half.skipped == std::vector<bool>(steps, false));

  // A scale that is a power of two changes no bit in float.
  Curve scaled = on_one_rank<float>({.loss_scale = LossScaleOptions{.initial = 1024, .interval = 5}});
  CHECK(scaled.losses == full.losses);
  CHECK(scaled.norms == full.norms);
  CHECK(scaled.scales[4] == 2048);
  CHECK(scaled.scales.back() == 1024 * 64);

  // Far too large: steps are skipped until it fits, and nothing was learnt from them.
  const Curve high = on_one_rank<float16>({.loss_scale = LossScaleOptions{.initial = 0x1p30, .largest = 0x1p30}});
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
  using Parallel = FullyShardedDataParallel<TensorParallel<PipelineParallel<nn::BasicGpt<float16>>>>;
  for (const Degrees& degrees : {Degrees{.tp = 2}, Degrees{.pp = 2}}) {
    std::vector<Curve> curves(4);
    CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, degrees);
            Parallel model(mesh, config);
            curves[std::size_t(world.rank())] = train(model, make_batch(std::size_t(mesh.rank(dp{})), 2, 2), 7);
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
    CHECK(curves[0].losses[8] == curves[0].losses[7]);  // the parameters are what they were
    CHECK(std::abs(curves[0].losses.front() / full.losses.front() - 1) < 2e-4);
    CHECK(curves[0].losses.back() < 0.5 * curves[0].losses.front());
  }
}

TEST_CASE("a loss scale says what it needs") {
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
