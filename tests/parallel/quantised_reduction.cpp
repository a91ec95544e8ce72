// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/fsdp/quantised_reduction.hpp weft/parallel/fsdp/packed_values.hpp
// Sums of gradients as integers (ZeRO++ qgZ): the error beside exact sums, a quarter of the bytes between nodes, every stage,
// copies, frozen parameters, numbers that are not finite, and the refusals.

#include <weft/parallel/fsdp/packed_values.hpp>
#include <weft/parallel/fsdp/quantised_reduction.hpp>

#include "support/counted_group.hpp"
#include "support/quantised_sums.hpp"

using namespace weft_test;

namespace {

using Model = models::BasicGpt<float>;
using Sharded = FullyShardedDataParallel<Model>;
const models::GptConfig config = quantised_config;

}  // namespace

TEST_CASE("the error is within half a unit of each of the two roundings") {
  for (const int node : {1, 2, 4})
    for (const int bits : {8, 4}) {
      INFO("4 ranks in nodes of " << node << ", " << bits << " bits");
      const double floats = quantised_error<float>(4, node, bits, {0, 700, 1400, 2100, 2800});
      CHECK(floats <= 1);
      CHECK(floats > 0.1);                                                          // the bound is of the right size
      CHECK(quantised_error<double>(4, node, bits, {0, 96, 96, 1000, 1032}) <= 1);  // pieces that differ, and none
    }
  CHECK(quantised_error<float>(8, 2, 4, {0, 300, 600, 900, 1200, 1500, 1800, 2100, 2400}) <= 1);
  CHECK(quantised_error<float>(8, 4, 8, {0, 300, 600, 900, 1200, 1500, 1800, 2100, 2400}) <= 1);
}

TEST_CASE("every stage trains beside sums in float, and repeats its bits") {
  for (const int stage : {1, 2, 3}) {
    INFO("stage " << stage);
    const QuantisedRun plain = train_quantised<Sharded>({.shard = {.stage = stage}});
    for (const std::size_t node : {1, 2, 4}) {
      const ModelOptions options{.shard = {.stage = stage, .quantised_reduce = node}};
      const QuantisedRun small = train_quantised<Sharded>(options);
      CHECK(small == train_quantised<Sharded>(options));
      CHECK(small != plain);
      CHECK(small.losses[0] == plain.losses[0]);
      CHECK(small.norms[0] == doctest::Approx(plain.norms[0]).epsilon(0.01));
      CHECK(small.losses.back() == doctest::Approx(plain.losses.back()).epsilon(0.02));
    }
  }
  const QuantisedRun plain = train_quantised<Sharded>({.shard = {.stage = 2}});
  const QuantisedRun four = train_quantised<Sharded>({.shard = {.stage = 2, .quantised_reduce = 2, .quantised_reduce_bits = 4}});
  CHECK(four.norms[0] == doctest::Approx(plain.norms[0]).epsilon(0.1));
  CHECK(four.losses.back() == doctest::Approx(plain.losses.back()).epsilon(0.05));
  CHECK(train_quantised<FullyShardedDataParallel<Model, zero::Stage2, QuantisedReduce<2>>>({}) ==
        train_quantised<Sharded>({.shard = {.stage = 2, .quantised_reduce = 2}}));
  // Copies of shards, gathers as integers, one reduction a step, frozen parameters: pieces of different sizes.
  for (ModelOptions options : {ModelOptions{.shard = {.stage = 3, .replicate = 2, .quantised_gather = true}},
                               ModelOptions{.shard = {.stage = 2, .reduce_each_micro_batch = false}},
                               ModelOptions{.shard = {.stage = 3}, .freeze = {"*.mlp.*"}}}) {
    const QuantisedRun whole = train_quantised<Sharded>(options);
    options.shard.quantised_reduce = 2;
    const QuantisedRun small = train_quantised<Sharded>(options);
    CHECK(small.norms[0] == doctest::Approx(whole.norms[0]).epsilon(0.01));
    CHECK(small.losses.back() == doctest::Approx(whole.losses.back()).epsilon(0.02));
  }
}

TEST_CASE("at most a quarter of the bytes between nodes") {
  const auto bytes_of = [](std::size_t node, std::string_view axis, std::string_view operation) {
    double bytes = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = 8, .threads_per_rank = 1}, [&](World& world) {
            Rehearsal counts;
            World counting(counted(world.communicator(), counts), world.device());
            const Mesh<dp> mesh(counting);
            Sharded model(mesh, config, {.shard = {.stage = 2, .quantised_reduce = node}, .numerics = {.compare_every = 0}});
            optim::AdamW optimizer(model);
            model.train_step(make_batch(0, std::size_t(world.rank()), 8, 1));
            optimizer.step();
            if (world.rank() == 0) bytes = double(counts.of(axis, operation).bytes);
          }) == 0);
    return bytes;
  };
  // Calls count whole arrays. In a ring over 8 ranks, one link leaves a node and carries 7 of the 8 pieces; in an all-to-all
  // between 4 nodes, each of the node's 2 ranks sends 3 of its 4 blocks.
  const double plain = bytes_of(0, "dp", "reduce_scatter") * 7 / 8, small = 2 * bytes_of(2, "dp copies", "all_to_all") * 3 / 4;
  MESSAGE("bytes that leave a node: " << plain << " in float, " << small << " as integers");
  CHECK(plain > 0);
  CHECK(small > 0.15 * plain);
  CHECK(small < 0.25 * plain);
}

TEST_CASE("a gradient that is not finite stays so") {
  std::vector<double> norms(4);
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4, .threads_per_rank = 1}, [&](World& world) {
          const Mesh<dp> mesh(world);
          Sharded model(mesh, config, {.shard = {.stage = 2, .quantised_reduce = 2}});
          optim::AdamW optimizer(model);
          auto values = model.parameter("transformer.wte.weight");
          for (double& value : values) value = 1e30;
          model.set_parameter("transformer.wte.weight", values);
          model.train_step(make_batch(0, std::size_t(world.rank()), 4, 1));
          norms[std::size_t(world.rank())] = optimizer.step().gradient_norm;
        }) == 0);
  for (const double norm : norms) CHECK(!std::isfinite(norm));
}

TEST_CASE("refusals, with the alternatives") {
  const auto refused = [](const ModelOptions& options) {
    std::string text;
    std::mutex mutex;
    (void)runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
      const Mesh<dp> mesh(world);
      try {
        Sharded model(mesh, config, options);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        text = error.what();
      }
    });
    return text;
  };
  CHECK(refused({.shard = {.stage = 2, .quantised_reduce = 3}}) ==
        "weft: dp(4) % quantised_reduce(3) != 0: use quantised_reduce 2 or 4");
  CHECK(refused({.shard = {.stage = 2, .replicate = 2, .quantised_reduce = 4}}) ==
        "weft: dp / replicate(2) % quantised_reduce(4) != 0: use quantised_reduce 2");
  CHECK(refused({.shard = {.stage = 2, .quantised_reduce = 2, .quantised_reduce_bits = 3}}) ==
        "weft: ModelOptions::shard.quantised_reduce_bits is 3: integers have 8 or 4 bits");
  CHECK(
      refused({.shard = {.stage = 2, .quantised_reduce = 2}, .numerics = {.reproducible = true}}) ==
      "weft: ModelOptions: shard.quantised_reduce sums gradients as integers, so it cannot go with numerics.reproducible; leave "
      "one of them out");
  CHECK(
      refused({.shard = {.stage = 2, .quantised_reduce = 2}, .numerics = {.reduce = DataType::bfloat16}}) ==
      "weft: ModelOptions: shard.quantised_reduce sums gradients as integers, so it cannot go with numerics.reduce in bfloat16; "
      "leave one of them out");
  CHECK(refused({.shard = {.stage = 0, .quantised_reduce = 2}}).find("are for FullyShardedDataParallel") != std::string::npos);
}
