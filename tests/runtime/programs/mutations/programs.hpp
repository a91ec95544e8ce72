// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training loops of the programs of test_mutations.py: two steps on the same 8 sequences in every layout.

#include <cstdint>
#include <cstdio>
#include <string>

#include <weft/runtime/prove.hpp>
#include <weft/weft.hpp>

namespace mutations {

using namespace weft;

/// At most `most` micro-batches.
inline TokenBatch tokens_of(std::size_t rank, std::size_t ranks, std::uint64_t step, std::size_t most, std::size_t length) {
  const std::size_t mine = 8 / ranks;
  TokenBatch batch{
      .sequences = mine, .length = length, .micro_batches = mine % most == 0 ? most : 1, .first_sequence = rank * mine};
  for (std::size_t i = 0; i < mine * length; ++i) {
    const std::size_t at = batch.first_sequence * length + i;
    batch.tokens.push_back(std::int32_t(Philox::uniform(key_of(3, step), at) * 16));
    batch.targets.push_back(at % 5 == 0 ? -1 : std::int32_t(Philox::uniform(key_of(4, step), at) * 16));
  }
  return batch;
}

template <class Model, class Optimizer = optim::AdamW, class M>
void train(M& mesh, const typename Model::Config& config, const ModelOptions& options = {.seed = 2},
           std::size_t micro_batches = 2) {
  Model model(mesh, config, options);
  Optimizer optimizer(model, {.learning_rate = 1e-2, .clip = 0.1});
  for (std::uint64_t step = 0; step < 2; ++step) {
    model.train_step(tokens_of(std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), step, micro_batches, config.sequence));
    optimizer.step();
  }
}

/// A program whose first argument chooses what it trains; `f(world, name)` returns false for a name that it has not.
template <class F>
int main_of(int argc, char** argv, const F& f) {
  const std::string name = argc > 1 ? argv[1] : "";
  return run<comm::Threads>(RunOptions{}, [&](World& world) {
    if (!f(world, name)) throw UsageError("no program is called '" + name + "'");
  });
}

}  // namespace mutations
