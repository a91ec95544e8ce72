// SPDX-License-Identifier: Apache-2.0
// A GPT in bfloat16 learns a batch in several layouts, its losses stay near those of float, and every rank says the same.

#include <doctest/doctest.h>

#include <cmath>
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

/// Losses of all steps, then the loss after them; gradient norms.
struct Curve {
  std::vector<double> losses, norms;
  friend bool operator==(const Curve&, const Curve&) = default;
};

template <class Model>
Curve train(Model& model, const Batch& batch) {
  optim::AdamW optimizer(model, {.learning_rate = 3e-3, .clip = 1});
  Curve curve;
  for (int step = 0; step < steps; ++step) {
    curve.losses.push_back(model.train_step(batch));
    const auto report = optimizer.step();
    CHECK(!report.skipped);
    curve.norms.push_back(report.gradient_norm);
  }
  curve.losses.push_back(model.evaluate(batch));
  return curve;
}

template <class S>
Curve on_one_rank() {
  DefaultDevice device;
  SingleDevice<nn::BasicGpt<S>> model(device, config);
  return train(model, make_batch(0, 1, 1));
}

/// The largest relative difference of the losses while they are not small.
double distance(const Curve& a, const Curve& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::max(1.0, b.losses[i]));
  return worst;
}

}  // namespace

TEST_CASE("a GPT in bfloat16 learns like one in float, in every layout alike") {
  const Curve full = on_one_rank<float>(), half = on_one_rank<bfloat16>();
  CHECK(std::abs(full.losses.front() - std::log(50.0)) < 0.2);
  CHECK(full.losses.back() < 0.5 * full.losses.front());
  CHECK(half.losses.back() < 0.5 * half.losses.front());
  CHECK(std::abs(half.losses.front() / full.losses.front() - 1) < 2e-3);  // the first forward has seen no update
  CHECK(std::abs(half.norms.front() / full.norms.front() - 1) < 2e-2);
  CHECK(distance(half, full) < 0.05);

  using Parallel = DataParallel<TensorParallel<PipelineParallel<nn::BasicGpt<bfloat16>, schedule::OneForwardOneBackward>>>;
  struct Layout {
    int ranks;
    Degrees degrees;
  };
  for (const Layout& layout : {Layout{2, {}}, Layout{2, {.tp = 2}}, Layout{4, {.tp = 4}}, Layout{4, {.pp = 4}}, Layout{8, {.tp = 2, .pp = 2}}}) {
    std::vector<Curve> curves(static_cast<std::size_t>(layout.ranks));
    CHECK(run(RunOptions{.ranks = layout.ranks}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, layout.degrees);
            Parallel model(mesh, config);
            curves[std::size_t(world.rank())] = train(model, make_batch(std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), std::size_t(mesh.size(pp{}))));
          }) == 0);
    INFO(layout.ranks << " ranks, tp(" << layout.degrees.tp << ") * pp(" << layout.degrees.pp << ")");
    for (const Curve& curve : curves) CHECK(curve == curves[0]);
    CHECK(std::abs(curves[0].losses.front() / full.losses.front() - 1) < 2e-3);
    CHECK(std::abs(curves[0].norms.front() / full.norms.front() - 1) < 2e-2);
    CHECK(distance(curves[0], full) < 0.05);
  }
}
