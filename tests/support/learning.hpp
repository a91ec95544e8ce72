// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training of a small GPT on one batch in 30 steps: curves of 16-bit models compared with float, and of layouts compared with one
// rank.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <weft/weft.hpp>

namespace weft_test {

using namespace weft;

namespace learning {

inline constexpr std::size_t sequences = 8, length = 16;
inline constexpr int steps = 30;
inline const models::GptConfig config{.vocabulary = 50, .layers = 4, .width = 64, .heads = 4, .kv_heads = 2, .sequence = length};

/// Share `share` of `shares` of the batch: predict the next of tokens that are a function of their index.
inline Batch batch(std::size_t share, std::size_t shares, std::size_t micro_batches) {
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

/// Losses of all steps, then the loss after them; gradient norms; loss scales, if there are any; the skipped steps.
struct Curve {
  std::vector<double> losses, norms, scales;
  std::vector<bool> skipped;
  friend bool operator==(const Curve&, const Curve&) = default;
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
      static_cast<float*>(last->gradient().get())[0] = std::numeric_limits<float>::infinity();
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
  SingleDevice<models::BasicGpt<S>> model(device, config, options);
  return train(model, batch(0, 1, 1));
}

/// The largest relative difference of the losses while they are not small.
inline double distance(const Curve& a, const Curve& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::max(1.0, b.losses[i]));
  return worst;
}

}  // namespace learning
}  // namespace weft_test
