// SPDX-License-Identifier: Apache-2.0
// Short runs on thread ranks for the sanitizers: operations on DTensors, stages that differ, sums in pieces, gradients summed as
// integers, and an elastic run that loses a rank. Numbers are in double, which uses weft's products: ThreadSanitizer cannot see
// the synchronisation of libraries.

#include "dtensor/operations_support.hpp"

#include <mutex>

#include <weft/elastic/run.hpp>

#include "support/elastic_training.hpp"
#include "support/quantised_sums.hpp"
#include "support/summed_pieces.hpp"
#include "support/uneven_stages.hpp"

using namespace weft_test;

namespace {

using Model = models::BasicGpt<double>;
using Composition = Tensors<Model>;
using Grid = Mesh<dp, tp, pp>;

/// Four steps of 3 ranks. Rank 1 of the first world is lost after two of them, if `loses`.
Trained elastic_run(bool loses, int& fewest) {
  constexpr std::size_t shares = 6;
  constexpr std::uint64_t steps = 4;
  Trained trained;
  std::mutex mutex;
  fewest = 3;
  const int code = elastic::run<comm::Threads>(
      RunOptions{.ranks = 3, .deadline_s = 120, .threads_per_rank = 1}, elastic::Options{.least = 2, .shares = shares},
      [&](World& world, elastic::Member& member) {
        const Grid mesh(world);
        Composition model(mesh, {.vocabulary = 19, .layers = 2, .width = 8, .heads = 2, .kv_heads = 1, .sequence = 4},
                          {.shard = {.stage = 3}, .numerics = {.reproducible = true}});
        optim::AdamW optimizer(model, {.learning_rate = 0.01, .clip = 0.5});
        for (std::uint64_t step = member.restore(model, optimizer); step < steps;) {
          const double loss = model.train_step(share_of_step(shares, step, std::size_t(world.rank()), std::size_t(world.size())));
          optimizer.step();
          {
            const std::lock_guard lock(mutex);
            fewest = std::min(fewest, world.size());
            if (world.rank() == 0) trained.losses.emplace(step, loss);
          }
          member.keep(model, optimizer, ++step);
          if (loses && member.generation() == 0 && step == 2 && world.rank() == 1) throw Error("lost");
        }
        take_whole_state(trained, mutex, model, optimizer);
      });
  CHECK(code == 0);
  CHECK(trained.losses.size() == steps);
  return trained;
}

}  // namespace

TEST_CASE("operations on DTensors") {
  std::size_t checked = 0;
  on(4, [&](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const std::size_t here = check_operations(world, dtensor::DeviceMesh(mesh, dp{}, tp{}), 1, 8);
    if (world.rank() == 0) checked = here;
  });
  CHECK(checked == operation_cases().size());
}

TEST_CASE("stages that differ") {
  const std::vector<Uneven> divisions = {{"1f1b", {.pp = 4}, {0, 2, 1, 1}},
                                         {"interleaved", {.tp = 2, .pp = 2}, {1, 1, 2, 0}},
                                         {"zbv", {.pp = 2}, {1, 1, 2, 0}, 4, 4, 2}};
  const auto config = of_layers(gpt_config(), 4);
  CHECK(check_uneven<Composition>(divisions, config, reference_of<Model>(config)) == divisions.size());
}

TEST_CASE("sums in pieces") { check_pieces<Composition>(2, {.tp = 2}, gpt_config(), 0); }

TEST_CASE("gradients summed as integers") {
  CHECK(quantised_error<double>(4, 2, 4, {0, 300, 600, 900, 1200}) <= 1);
  const ModelOptions options{.shard = {.stage = 2, .quantised_reduce = 2}};
  const QuantisedRun run = train_quantised<Composition, comm::Threads, Grid>(options, 4, 2, 2);
  CHECK(run.losses.size() == 2);
  CHECK(run == train_quantised<Composition, comm::Threads, Grid>(options, 4, 2, 2));
}

TEST_CASE("an elastic run that loses a rank") {
  int fewest = 0;
  const Trained expected = elastic_run(false, fewest);
  CHECK(fewest == 3);
  CHECK(elastic_run(true, fewest) == expected);
  CHECK(fewest == 2);
}
