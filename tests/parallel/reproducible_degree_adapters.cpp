// SPDX-License-Identifier: Apache-2.0
// Under numerics.reproducible_degree low-rank adapters, and the norm of heads over cp, have the same bits for every tp and cp
// that divide the degree.

#include "support/message.hpp"
#include "support/reproducible_degree.hpp"

using namespace weft_test;

namespace {

template <class M>
using Rows = FullyShardedDataParallel<SequenceParallel<PipelineParallel<M>>>;
template <class M>
using Chunks = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<M>>>>;
using RowMesh = Mesh<dp, tp, pp>;
using ChunkMesh = Mesh<dp, cp, tp, pp>;

}  // namespace

TEST_CASE("adapters of a Llama in float over tp and cp, beside dp, pp and stages of ZeRO") {
  check_same_bits<Chunks<models::BasicLlama<float, Lora>>, ChunkMesh>(degree_llama(), {{.tp = 2},
                                                                                       {.tp = 4},
                                                                                       {.cp = 2},
                                                                                       {.cp = 4},
                                                                                       {.cp = 2, .tp = 2},
                                                                                       {.tp = 2, .threads = 2},
                                                                                       {.tp = 4, .dp = 2, .stage = 3},
                                                                                       {.cp = 2, .tp = 2, .pp = 2}});
}

TEST_CASE("adapters of a GPT in bfloat16 under sequence parallelism") {
  check_same_bits<Rows<models::BasicGpt<bfloat16, Lora>>, RowMesh>(degree_gpt(), {{.tp = 2}, {.tp = 4, .dp = 2, .stage = 3}});
}

TEST_CASE("norms of heads in double over tp and cp") {
  auto config = degree_llama();
  config.attention.query_key_norm = true;
  check_same_bits<Chunks<models::BasicLlama<double>>, ChunkMesh>(
      config, {{.tp = 2}, {.tp = 4}, {.cp = 2}, {.cp = 4}, {.cp = 2, .tp = 2}});
}

TEST_CASE("the numbers are those without the degree") {
  auto config = degree_llama();
  config.attention.query_key_norm = true;
  check_same_numbers<Chunks<models::BasicLlama<double>>, ChunkMesh>(config, {.cp = 2, .tp = 2}, 1e-11);
  check_same_numbers<Chunks<models::BasicLlama<float, Lora>>, ChunkMesh>(degree_llama(), {.cp = 2, .tp = 2}, 1e-4);
}

TEST_CASE("heads that the degree does not divide are refused") {
  auto config = degree_llama();
  config.attention.query_key_norm = true;
  config.kv_heads = 2;
  World world{Communicator()};
  const ChunkMesh mesh(world);
  Chunks<models::BasicLlama<double>> model(mesh, config, {.numerics = {.reproducible = true, .reproducible_degree = 4}});
  CHECK_THROWS_WITH_AS(model.train_step(degree_batch(0, 0, 1)), doctest::Contains("heads(2) % degree(4) != 0"), UsageError);
}

TEST_CASE("without the degree the bits differ") {
  using Model = Chunks<models::BasicLlama<float, Lora>>;
  Bits one;
  std::string differ;
  train_bits<Model, ChunkMesh>(degree_llama(), {}, 0, one);
  train_bits<Model, ChunkMesh>(degree_llama(), {.tp = 2}, 0, one, &differ);
  for (const char* name : {"self_attn.o_proj.lora_B.weight", "self_attn.q_proj.lora_A.weight", "mlp.down_proj.lora_B.weight"})
    CHECK(differ.find("gradient of model.layers.0." + std::string(name) + " ") != std::string::npos);
}
