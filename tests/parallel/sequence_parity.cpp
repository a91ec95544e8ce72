// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/sequence_parallel.hpp
// Sequence parallelism gives the loss, gradients and logits of one rank in every layout of (dp, tp, pp): norms on shards of the
// rows, dropout masks by global row, gradients of gains and biases summed over tp.

#include <weft/parallel/sequence_parallel.hpp>

#include "support/parity.hpp"

using namespace weft_test;

template <class Model>
using Composition = DataParallel<SequenceParallel<PipelineParallel<Model>>>;

TEST_CASE("sequence parallel gpt in double") { check_all_layouts<Composition<models::BasicGpt<double>>>(gpt_config(), 1e-12); }
TEST_CASE("sequence parallel llama in double") {
  check_all_layouts<Composition<models::BasicLlama<double>>>(llama_config(), 1e-12);
}
TEST_CASE("rows that tp does not divide are refused with the numbers") {
  std::string text;
  const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
    Mesh<tp> mesh(world, {.tp = 2});
    SequenceParallel<models::BasicGpt<double>> model(mesh, gpt_config());
    Batch batch = make_batch(0, 0, 1, 1);
    batch.sequences = 1;
    batch.length = 7;
    batch.tokens.resize(7);
    batch.targets.resize(7);
    try {
      model.train_step(batch);
    } catch (const ShapeError& error) {
      if (world.rank() == 0) text = error.what();
    }
  });
  CHECK(code == 0);
  INFO(text);
  CHECK(text.find("not divisible by tp(2)") != std::string::npos);
}
