// SPDX-License-Identifier: Apache-2.0
#pragma once
// 20 steps of AdamW with clipping, whose losses, norms and weights are compared as bits.

#include "support/parity.hpp"

#include <weft/engine/parameter_values.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

namespace weft_test {

constexpr std::size_t reproducible_length = 8, reproducible_vocabulary = 19;

inline Batch share(std::uint64_t step, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  Batch batch;
  batch.sequences = micro_batches / ranks;
  batch.length = reproducible_length;
  batch.micro_batches = batch.sequences;
  batch.first_sequence = batch.sequences * rank;
  batch.step = step;
  for (std::size_t i = 0; i < batch.sequences * reproducible_length; ++i) {
    const std::size_t index = batch.first_sequence * reproducible_length + i;
    batch.tokens.push_back(static_cast<std::int32_t>(key_of(step, index) % reproducible_vocabulary));
    batch.targets.push_back(index % 5 == 0 ? -1 : static_cast<std::int32_t>(key_of(step, index, 7) % reproducible_vocabulary));
  }
  return batch;
}

struct Run20 {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;
  friend bool operator==(const Run20&, const Run20&) = default;
};

template <class M>
void train_20(M& model, std::size_t rank, std::size_t ranks, std::size_t micro_batches, Run20& run, std::mutex& mutex,
              bool first) {
  optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 0.5});
  for (int step = 0; step < 20; ++step) {
    const double loss = model.train_step(share(step, rank, ranks, micro_batches));
    const double norm = optimizer.step().gradient_norm;
    if (!first) continue;
    run.losses.push_back(loss);
    run.norms.push_back(norm);
  }
  const double evaluation = model.evaluate(share(99, rank, ranks, micro_batches));
  if (first) run.losses.push_back(evaluation);
  std::lock_guard lock(mutex);
  model.for_each_state([&](ParameterState& state) {
    auto& values = run.weights[state.name()];
    values.resize(state.global().size());
    const detail::Buffer value = detail::value_of(model.device(), state);
    using T = typename M::model_type::scalar;
    for (const auto& part : state.runs())
      for (std::size_t i = 0; i < part.length; ++i)
        values[part.global + i] = accumulate_t<T>(static_cast<const T*>(value.get())[part.local + i]);
  });
}

}  // namespace weft_test
