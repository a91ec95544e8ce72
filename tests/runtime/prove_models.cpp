// SPDX-License-Identifier: Apache-2.0
// Proofs of weft's models over the axes whose ranks hold parts of sequences, or experts.
#define WEFT_PROVE_IN_DOUBLE
#include <doctest/doctest.h>

#include <cstdint>

#include <weft/testing/prove.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

// 16 sequences of 8 tokens, the same for any number of data ranks that divides them.
TokenBatch tokens_of(std::size_t rank, std::size_t ranks, std::uint64_t step) {
  const std::size_t mine = 16 / ranks;
  TokenBatch batch{.sequences = mine, .length = 8, .micro_batches = mine % 2 == 0 ? 2u : 1u, .first_sequence = rank * mine};
  for (std::size_t i = 0; i < mine * 8; ++i) {
    batch.tokens.push_back(std::int32_t(Philox::uniform(key_of(3, step), batch.first_sequence * 8 + i) * 16));
    batch.targets.push_back(std::int32_t(Philox::uniform(key_of(4, step), batch.first_sequence * 8 + i) * 16));
  }
  return batch;
}

template <class Model, class M>
void train(M& mesh, const typename Model::Config& config) {
  Model model(mesh, config, {.seed = 2});
  optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
  for (std::uint64_t step = 0; step < 2; ++step) {
    model.train_step(tokens_of(std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), step));
    optimizer.step();
  }
}

}  // namespace

TEST_CASE("a GPT with dropout over cp and tp") {
  const runtime::ProofReport report = testing::prove(
      [](World& world) {
        Mesh<dp, cp, tp> mesh(world);
        train<FullyShardedDataParallel<ContextParallel<TensorParallel<models::Gpt>>>>(
            mesh, {.vocabulary = 16, .layers = 2, .width = 16, .heads = 4, .sequence = 8, .dropout = 0.1});
      },
      {.ranks = 4});
  CHECK(report.count(runtime::ProvenLayout::Verdict::agrees) == 25);
}

TEST_CASE("a mixture of experts over ep, edp and pp") {
  const runtime::ProofReport report = testing::prove(
      [](World& world) {
        Mesh<dp, pp, ep, edp> mesh(world);
        train<FullyShardedDataParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>(mesh, {.vocabulary = 16,
                                                                                                  .layers = 2,
                                                                                                  .width = 16,
                                                                                                  .heads = 4,
                                                                                                  .kv_heads = 2,
                                                                                                  .intermediate = 12,
                                                                                                  .sequence = 8,
                                                                                                  .experts = 4,
                                                                                                  .top_k = 2});
      },
      {.ranks = 4});
  CHECK(report.count(runtime::ProvenLayout::Verdict::agrees) == 51);
}
