// SPDX-License-Identifier: Apache-2.0
// Under numerics.reproducible_degree a mixture of experts and the norm of heads have the same bits for every tp that divides the
// degree: gradients of experts and routers are sums over rows that tp cuts, those of a head's gain over heads.

#include "support/reproducible_degree.hpp"

using namespace weft_test;

namespace {

template <class M>
using Heads = FullyShardedDataParallel<TensorParallel<PipelineParallel<M>>>;
template <class M>
using Rows = FullyShardedDataParallel<SequenceParallel<PipelineParallel<M>>>;
using Grid = Mesh<dp, tp, pp>;

}  // namespace

TEST_CASE("tp 1, 2 and 4 of a Mixtral in float, beside dp, pp and stages of ZeRO") {
  check_same_bits<Heads<models::BasicMixtral<float>>, Grid>(
      degree_mixtral(),
      {{.tp = 2}, {.tp = 4}, {.tp = 2, .threads = 2}, {.tp = 4, .dp = 2, .stage = 3}, {.tp = 2, .dp = 2, .pp = 2, .stage = 2}});
}

TEST_CASE("experts that drop tokens") {
  auto config = degree_mixtral();
  config.capacity_factor = 0.7;
  config.drop = nn::Drop::by_probability;
  check_same_bits<Heads<models::BasicMixtral<float>>, Grid>(config, {{.tp = 2}, {.tp = 4}});
}

TEST_CASE("in bfloat16, and in double under sequence parallelism") {
  check_same_bits<Heads<models::BasicMixtral<bfloat16>>, Grid>(degree_mixtral(), {{.tp = 2}, {.tp = 4, .dp = 2, .stage = 3}});
  check_same_bits<Rows<models::BasicMixtral<double>>, Grid>(degree_mixtral(), {{.tp = 2}, {.tp = 4}});
}

TEST_CASE("the numbers are those without the degree") {
  check_same_numbers<Rows<models::BasicMixtral<double>>, Grid>(degree_mixtral(), {.tp = 2}, 1e-11);
}

TEST_CASE("experts over ep, and inside of cp, are refused") {
  using M = models::BasicMixtral<float>;
  const ModelOptions options{.numerics = {.reproducible = true, .reproducible_degree = 4}};
  CHECK(runtime::run(runtime::RunOptions{.ranks = 1, .threads_per_rank = 1}, [&](World& world) {
          const Mesh<tp, ep, edp> mesh(world);
          TensorParallel<ExpertParallel<M>> model(mesh, degree_mixtral(), options);
          CHECK_THROWS_WITH_AS(model.train_step(degree_batch(0, 0, 1)),
                               doctest::Contains("the sum over tp of tokens under ExpertParallel has no fixed terms"),
                               UsageError);
        }) == 0);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 1, .threads_per_rank = 1}, [&](World& world) {
          const Mesh<cp, tp> mesh(world);
          ContextParallel<TensorParallel<M>> model(mesh, degree_mixtral(), options);
          CHECK_THROWS_WITH_AS(model.train_step(degree_batch(0, 0, 1)),
                               doctest::Contains("a mixture of experts inside ContextParallel cuts rows over tp and cp"),
                               UsageError);
        }) == 0);
}

TEST_CASE("without the degree the bits differ") {
  using Model = Heads<models::BasicMixtral<float>>;
  Bits one;
  std::string differ;
  train_bits<Model, Grid>(degree_mixtral(), {}, 0, one);
  train_bits<Model, Grid>(degree_mixtral(), {.tp = 2}, 0, one, &differ);
  for (const char* name : {"self_attn.q_norm.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.experts.1.w1.weight",
                           "block_sparse_moe.experts.1.w2.weight", "block_sparse_moe.experts.1.w3.weight"})
    CHECK(differ.find("gradient of model.layers.1." + std::string(name) + " ") != std::string::npos);
}
