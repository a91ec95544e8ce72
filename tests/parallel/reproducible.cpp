// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/reproducible/gradient_trees.hpp weft/parallel/reproducible/option.hpp
// covers: weft/parallel/reproducible/parts.hpp weft/parallel/reproducible/tree_exchange.hpp
// A reproducible run has the bits of one rank in every layout: 20 steps of AdamW with clipping, for dp, pp, stages of ZeRO and
// schedules, with a number of micro-batches that is a power of two and one that is not. Compared: losses, gradient norms and
// every updated weight.
// covers: weft/comm/reduction_tree.hpp

#include "support/reproducible.hpp"

#include <weft/comm/reduction_tree.hpp>
#include <weft/parallel/reproducible/gradient_trees.hpp>
#include <weft/parallel/reproducible/option.hpp>
#include <weft/parallel/reproducible/parts.hpp>
#include <weft/parallel/reproducible/tree_exchange.hpp>
#include <weft/parallel/single_device.hpp>

using namespace weft_test;

namespace {

using Model = models::BasicGpt<float>;

models::GptConfig config() {
  return {.vocabulary = reproducible_vocabulary,
          .layers = 8,
          .width = 16,
          .heads = 2,
          .kv_heads = 1,
          .sequence = reproducible_length,
          .dropout = 0.1};
}

Run20 one_rank(std::size_t micro_batches, bool reproducible = true) {
  Run20 run;
  std::mutex mutex;
  DefaultDevice device;
  SingleDevice<Model> model(device, config(), {.numerics = {.reproducible = reproducible}});
  train_20(model, 0, 1, micro_batches, run, mutex, true);
  return run;
}

using Sharded = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>>, Reproducible>;
// Products of rows that come round, whose bits depend on the number of rows in a piece.
using RowsCut = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>>, Reproducible>;

template <class Composition = Sharded>
Run20 run_of(std::size_t data, std::size_t pipeline, int stage, const std::string& schedule, std::size_t micro_batches,
             std::size_t tensor = 1, std::size_t context = 1) {
  Run20 run;
  std::mutex mutex;
  const int code = runtime::run(runtime::RunOptions{.ranks = int(data * pipeline * tensor * context), .threads_per_rank = 1},
                                [&](World& world) {
                                  Mesh<dp, cp, tp, pp> mesh(world, Degrees{.tp = tensor, .cp = context, .pp = pipeline});
                                  ModelOptions options;
                                  options.shard.stage = stage;
                                  options.pipeline.schedule = schedule::choose(schedule);
                                  Composition model(mesh, config(), options);
                                  train_20(model, mesh.comm(dp{}).rank(), data, micro_batches, run, mutex, world.rank() == 0);
                                });
  CHECK(code == 0);
  return run;
}

const Run20& reference(std::size_t micro_batches) {
  static const Run20 eight = one_rank(8), six = one_rank(6);
  return micro_batches == 8 ? eight : six;
}

void check(std::size_t data, std::size_t pipeline, int stage, const std::string& schedule, std::size_t micro_batches) {
  INFO("dp " << data << ", pp " << pipeline << ", stage " << stage << ", " << schedule << ", micro-batches " << micro_batches);
  const Run20 run = run_of(data, pipeline, stage, schedule, micro_batches);
  const Run20& expected = reference(micro_batches);
  CHECK(run.losses == expected.losses);
  CHECK(run.norms == expected.norms);
  CHECK(run.weights == expected.weights);
}

}  // namespace

TEST_CASE("data parallel and every stage of ZeRO, 8 micro-batches") {
  for (const int stage : {0, 1, 2, 3})
    for (const std::size_t data : {1, 2, 4, 8}) check(data, 1, stage, "1f1b", 8);
}

TEST_CASE("6 micro-batches: ranks hand on several nodes of the tree") {
  for (const int stage : {0, 1, 2, 3})
    for (const std::size_t data : {1, 2, 3, 6}) check(data, 1, stage, "1f1b", 6);
}

TEST_CASE("pipelines and schedules") {
  for (const std::size_t pipeline : {2, 4})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}) {
      check(1, pipeline, 0, schedule, 8);
      check(2, pipeline, 3, schedule, 8);
    }
  check(2, 2, 2, "interleaved", 8);
  check(2, 2, 1, "zbv", 8);
  check(4, 2, 3, "1f1b", 8);
  check(1, 2, 3, "zbv", 6);
  check(2, 2, 3, "1f1b", 6);
  check(3, 2, 2, "gpipe", 6);
}

TEST_CASE("beside tensor parallelism of one degree, some key-value heads on two ranks") {
  const Run20 expected = run_of(1, 1, 0, "1f1b", 8, 2);
  CHECK(run_of(2, 1, 3, "1f1b", 8, 2) == expected);
  CHECK(run_of(2, 2, 2, "zb-h1", 8, 2) == expected);
  CHECK(run_of(4, 1, 0, "gpipe", 8, 2) == expected);
}

TEST_CASE("beside sequence parallelism of one degree") {
  const Run20 expected = run_of<RowsCut>(1, 1, 0, "1f1b", 8, 2);
  CHECK(run_of<RowsCut>(2, 1, 3, "1f1b", 8, 2) == expected);
  CHECK(run_of<RowsCut>(2, 2, 2, "zb-h1", 8, 2) == expected);
  CHECK(run_of<RowsCut>(4, 1, 0, "gpipe", 8, 2) == expected);
}

TEST_CASE("beside context parallelism of one degree") {
  const Run20 expected = run_of(1, 1, 0, "1f1b", 8, 1, 2);
  CHECK(run_of(2, 1, 3, "1f1b", 8, 1, 2) == expected);
  CHECK(run_of(2, 2, 2, "zbv", 8, 1, 2) == expected);
  CHECK(run_of(4, 1, 1, "gpipe", 8, 1, 2) == expected);
}

TEST_CASE("in bfloat16, whose gradients every stage then keeps in float") {
  using Half = models::BasicGpt<bfloat16>;
  Run20 expected;
  std::mutex mutex;
  DefaultDevice device;
  SingleDevice<Half> one(device, config(), {.numerics = {.reproducible = true}});
  train_20(one, 0, 1, 8, expected, mutex, true);
  for (const auto& [data, stage] : {std::pair(2, 0), std::pair(2, 1), std::pair(4, 2), std::pair(2, 3), std::pair(8, 3)}) {
    INFO("dp " << data << ", stage " << stage);
    Run20 run;
    CHECK(runtime::run(runtime::RunOptions{.ranks = data, .threads_per_rank = 1}, [&](World& world) {
            Mesh<dp> mesh(world);
            FullyShardedDataParallel<Half, Reproducible> model(mesh, config(), {.shard = {.stage = stage}});
            train_20(model, std::size_t(world.rank()), std::size_t(world.size()), 8, run, mutex, world.rank() == 0);
          }) == 0);
    CHECK(run == expected);
  }
}

TEST_CASE("without it the bits differ") { CHECK(!(one_rank(8, false).weights == reference(8).weights)); }

TEST_CASE("shares out of order are refused") {
  DefaultDevice device;
  SingleDevice<Model> model(device, config(), {.numerics = {.reproducible = true}});
  Batch batch = share(0, 1, 2, 8);
  CHECK_THROWS_WITH_AS(model.train_step(batch),
                       "weft: reproducible: dp rank 0's share of the batch begins at sequence 4, expected 0: shares lie in the "
                       "order of the ranks and are of one size",
                       UsageError);
}

TEST_CASE("the tree over terms is the same for every number of ranks") {
  for (std::size_t terms = 1; terms <= 40; ++terms) {
    std::vector<double> values(terms);
    for (std::size_t i = 0; i < terms; ++i) values[i] = 1 / double(i + 3);
    auto copy = values;
    const double expected = detail::tree_sum(copy);
    for (std::size_t ranks = 1; ranks <= terms; ++ranks) {
      if (terms % ranks != 0) continue;
      const detail::ReductionTree tree(terms, ranks);
      std::vector<double> sums;
      for (const detail::TreeNode& node : tree.nodes()) {
        const std::size_t end = std::min(terms, (node.index + 1) << node.level);
        sums.push_back(detail::tree_sum(std::span(copy = values).subspan(node.begin(), end - node.begin())));
      }
      for (const auto& [into, from] : tree.additions()) sums[into] += sums[from];
      CHECK(sums[0] == expected);
      CHECK(tree.additions().size() + 1 == tree.nodes().size());
    }
  }
}
