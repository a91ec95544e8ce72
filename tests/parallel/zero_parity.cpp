// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/fully_sharded_data_parallel.hpp weft/parallel/fsdp/fully_sharded_hooks.hpp
// covers: weft/parallel/fsdp/flat_parameter_group.hpp weft/parallel/fsdp/flat_values.hpp weft/parallel/fsdp/settings.hpp
// FullyShardedDataParallel gives the loss, gradients, norm, validation loss and logits of one rank in every stage of ZeRO, alone
// and combined with tensor, sequence and pipeline parallelism, with several micro-batches and tied embeddings. Gradients are
// compared on the shards that ranks keep; their sizes must add up to the model's.

#include <weft/parallel/fsdp/flat_parameter_group.hpp>
#include <weft/parallel/fsdp/flat_values.hpp>
#include <weft/parallel/fsdp/fully_sharded_hooks.hpp>
#include <weft/parallel/fsdp/settings.hpp>
#include <weft/parallel/fully_sharded_data_parallel.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

struct Case {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
};

const Case layouts[] = {{1, {}, 2}, {2, {}, 1},        {2, {}, 4},        {4, {}, 2},
                        {8, {}, 1}, {4, {.tp = 2}, 2}, {4, {.pp = 2}, 4}, {8, {.tp = 2, .pp = 2}, 4}};

template <class Model, class... Stage>
void check_stage(const typename Model::Config& config, const Reference& reference, double tolerance,
                 const ModelOptions& options = {}) {
  for (const Case& layout : layouts)
    check_layout<FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>, Stage...>>(
        config, reference, layout.world, layout.degrees, layout.micro_batches, tolerance, options);
}

// The stage as a choice of the run: the same hooks as the types Stage1 to Stage3 hang up, compiled once.
template <class Model>
void check_stages(double tolerance) {
  const Reference reference = reference_of<Model>(gpt_config());
  for (const int stage : {0, 1, 2, 3}) {
    INFO("stage " << stage);
    check_stage<Model>(gpt_config(), reference, tolerance, ModelOptions{.shard = {.stage = stage}});
  }
}

}  // namespace

TEST_CASE("every stage in double") { check_stages<models::BasicGpt<double>>(1e-12); }
TEST_CASE("hybrid sharding: copies of the shards") {
  using Model = models::BasicGpt<double>;
  using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
  const Reference reference = reference_of<Model>(gpt_config());
  for (const int stage : {1, 2, 3})
    for (const std::size_t replicate : {2, 4}) {
      INFO("stage " << stage << ", copies " << replicate);
      for (const Case& layout : {Case{4, {}, 2}, Case{8, {}, 1}, Case{8, {.tp = 2}, 2}, Case{8, {.pp = 2}, 2}})
        check_layout<Composition>(gpt_config(), reference, layout.world, layout.degrees, layout.micro_batches, 1e-12,
                                  ModelOptions{.shard = {.stage = stage, .replicate = replicate}});
    }
  check_layout<Composition>(gpt_config(), reference, 4, {}, 2, 1e-12,
                            ModelOptions{.shard = {.stage = 3, .replicate = 2, .reduce_each_micro_batch = false}});
}

TEST_CASE("neighbours keep gathered values, state lies in host memory") {
  using Model = models::BasicGpt<double>;
  using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
  const Reference reference = reference_of<Model>(gpt_config());
  check_layout<Composition>(gpt_config(), reference, 4, {}, 2, 1e-12, ModelOptions{.shard = {.stage = 3, .secondary = 2}});
  check_layout<Composition>(gpt_config(), reference, 8, {.pp = 2}, 2, 1e-12,
                            ModelOptions{.shard = {.stage = 3, .replicate = 2, .secondary = 2}});
  check_layout<Composition>(gpt_config(), reference, 8, {.tp = 2, .pp = 2}, 4, 1e-12,
                            ModelOptions{.shard = {.stage = 3, .offload = Offload::host()}});
}

TEST_CASE("every stage in float") { check_stages<models::BasicGpt<float>>(1e-5); }
TEST_CASE("stage 3 of llama, untied, in double") {
  check_stage<models::BasicLlama<double>, zero::Stage3>(llama_config(), reference_of<models::BasicLlama<double>>(llama_config()),
                                                        1e-12);
}
TEST_CASE("no such stage") {
  std::string text;
  runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    try {
      FullyShardedDataParallel<models::BasicGpt<double>> model(mesh, gpt_config(), ModelOptions{.shard = {.stage = 4}});
    } catch (const UsageError& error) {
      text = error.what();
    }
  });
  CHECK(text == "weft: ModelOptions::shard.stage is 4: the stages are 0, 1, 2 and 3");
}

namespace {
/// An update that needs whole matrices; its arithmetic does not matter here.
struct WholeRule : optim::SgdRule {
  static constexpr bool elementwise = false;
};
}  // namespace

// The compiler refuses a stage that is in the type (compile_fail/data_parallel.cpp).
TEST_CASE("a rule that needs whole parameters is refused at every stage of the run but 0") {
  for (const int stage : {0, 1, 2, 3}) {
    std::string text;
    runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
      Mesh<dp> mesh(world);
      FullyShardedDataParallel<models::BasicGpt<double>> model(mesh, gpt_config(), {.shard = {.stage = stage}});
      try {
        optim::Optimizer<WholeRule> optimizer(model);
      } catch (const UsageError& error) {
        text = error.what();
      }
    });
    if (stage == 0) CHECK(text == "");
    else
      CHECK(text.find(" is sharded over data ranks: use ModelOptions::shard.stage 0, or an elementwise rule") !=
            std::string::npos);
  }
}

TEST_CASE("a stage in the type and one of the run give the same bits") {
  const auto losses = []<class M>(std::type_identity<M>, const ModelOptions& options) {
    std::vector<double> losses;
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            M model(mesh, gpt_config(), options);
            CHECK(model.options().shard.stage == 2);
            optim::Sgd optimizer(model, {.learning_rate = 0.1});
            for (int step = 0; step < 3; ++step) {
              const double loss = model.train_step(make_batch(step, std::size_t(world.rank()), 2, 2));
              if (world.rank() == 0) losses.push_back(loss);
              optimizer.step();
            }
          }) == 0);
    return losses;
  };
  using M = models::BasicGpt<double>;
  CHECK(losses(std::type_identity<FullyShardedDataParallel<M, zero::Stage2>>{}, {}) ==
        losses(std::type_identity<FullyShardedDataParallel<M>>{}, {.shard = {.stage = 2}}));
}
