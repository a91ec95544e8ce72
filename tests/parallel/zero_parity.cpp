// SPDX-License-Identifier: Apache-2.0
// FullyShardedDataParallel gives one rank's loss, gradients, norm, validation loss and logits in every stage of ZeRO, alone
// and beside tensor, sequence and pipeline parallelism, with several micro-batches and tied embeddings. Gradients are
// compared on the shards that ranks keep; their sizes must add up to the model's.

#include "support/parity.hpp"

using namespace weft_test;

namespace {

struct Layout {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
};

const Layout layouts[] = {{1, {}, 2}, {2, {}, 1}, {2, {}, 4}, {4, {}, 2}, {8, {}, 1}, {4, {.tp = 2}, 2}, {4, {.pp = 2}, 4}, {8, {.tp = 2, .pp = 2}, 4}};

template <class Model, class Stage, class Schedule = schedule::OneForwardOneBackward>
void check_stage(const typename Model::Config& config, double tolerance) {
  const Reference reference = reference_of<Model>(config);
  for (const Layout& layout : layouts)
    check_layout<FullyShardedDataParallel<TensorParallel<PipelineParallel<Model, Schedule>>, Stage>>(config, reference, layout.world, layout.degrees, layout.micro_batches, tolerance);
}

}  // namespace

TEST_CASE("stage 1 in double") { check_stage<nn::BasicGpt<double>, zero::Stage1>(gpt_config(), 1e-12); }
TEST_CASE("stage 2 in double") { check_stage<nn::BasicGpt<double>, zero::Stage2>(gpt_config(), 1e-12); }
TEST_CASE("stage 3 in double") { check_stage<nn::BasicGpt<double>, zero::Stage3>(gpt_config(), 1e-12); }
TEST_CASE("stage 1 in float") { check_stage<nn::BasicGpt<float>, zero::Stage1>(gpt_config(), 1e-5); }
TEST_CASE("stage 2 in float") { check_stage<nn::BasicGpt<float>, zero::Stage2>(gpt_config(), 1e-5); }
TEST_CASE("stage 3 in float") { check_stage<nn::BasicGpt<float>, zero::Stage3>(gpt_config(), 1e-5); }
TEST_CASE("stage 3 of llama, untied, in double") { check_stage<nn::BasicLlama<double>, zero::Stage3>(llama_config(), 1e-12); }
