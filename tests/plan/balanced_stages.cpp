// SPDX-License-Identifier: Apache-2.0
// Costs of a model's ends by rehearsal, and the stages that follow from them: the estimated step is shorter than with equal
// stages, and `choose` offers such stages.

#include <weft/plan/balanced_stages.hpp>

#include "support/parity.hpp"

#include <numeric>

#include <weft/models/llama.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/plan/choose.hpp>
#include <weft/plan/estimate.hpp>

using namespace weft_test;

namespace {

using Llama = models::BasicLlama<bfloat16>;
using Counts = std::vector<std::size_t>;
// The head costs as much as several blocks.
const models::LlamaConfig config{.vocabulary = 65536, .layers = 14, .width = 512, .heads = 8, .sequence = 512};

void train(World& world, std::size_t layers, const ModelOptions& options, std::size_t micro_batches) {
  const Mesh<dp, pp> mesh(world, {.pp = std::size_t(world.size())});
  models::LlamaConfig sized = config;
  sized.layers = layers;
  DataParallel<PipelineParallel<Llama>> model(mesh, sized, options);
  optim::AdamW optimizer(model);
  Batch batch{.sequences = micro_batches, .length = config.sequence, .micro_batches = micro_batches};
  batch.tokens.assign(batch.sequences * batch.length, 0), batch.targets = batch.tokens;
  for (int step = 0; step < 2; ++step) {
    model.train_step(batch);
    optimizer.step();
  }
}

plan::StageCosts costs() {
  return plan::stage_costs({.ranks = 3}, plan::known_machine("h100"), [](World& world) { train(world, 3, {}, 3); });
}

}  // namespace

TEST_CASE("the head of a large vocabulary costs several blocks, the embedding little") {
  const plan::StageCosts found = costs();
  MESSAGE("front " << found.front / found.block << ", back " << found.back / found.block << " blocks");
  CHECK(found.block > 0);
  CHECK(found.front < 0.5 * found.block);
  CHECK(found.back > 2 * found.block);
  CHECK(found.back < 20 * found.block);
  CHECK_THROWS_AS(plan::stage_costs({.ranks = 2}, plan::known_machine("h100"), [](World& world) { train(world, 3, {}, 2); }),
                  UsageError);
}

TEST_CASE("stages by cost take less time than equal ones, under every schedule") {
  const plan::Machine machine = plan::known_machine("h100");
  const plan::StageCosts found = costs();
  for (const char* name : {"1f1b", "zb-h1", "interleaved", "zbv"}) {
    const auto schedule = schedule::choose(name);
    const auto seconds = [&](const Counts& layers) {
      return plan::estimate(
                 {.ranks = 4}, machine,
                 [&](World& world) { train(world, config.layers, {.pipeline = {.schedule = schedule, .layers = layers}}, 16); })
          .seconds;
    };
    const Counts layers = plan::balanced_stages(config.layers, *schedule, 4, found);
    INFO(std::string(name) << ", layers " << mesh_layout::counts_text(layers));
    CHECK(std::accumulate(layers.begin(), layers.end(), std::size_t(0)) == config.layers);
    const double by_cost = seconds(layers), equal = seconds({});
    MESSAGE(std::string(name) << ": " << equal << " s with equal stages, " << by_cost << " s with "
                              << mesh_layout::counts_text(layers));
    CHECK(by_cost < equal);
  }
}

TEST_CASE("the choice of a layout offers stages by cost, and layers that pp does not divide") {
  plan::Search search;
  search.ranks = 4, search.global_batch = 16, search.layers = std::int64_t(config.layers);
  search.width = std::int64_t(config.width), search.heads = search.kv_heads = std::int64_t(config.heads);
  search.sequence = std::int64_t(config.sequence), search.vocabulary = std::int64_t(config.vocabulary);
  search.columns = std::int64_t(config.intermediate_width()), search.sequence_parallel = false;
  search.ranks_per_node = 1;  // messages between nodes: pipelines are fast
  const std::vector<plan::Candidate> all = plan::candidates(search);
  CHECK(std::any_of(all.begin(), all.end(), [](const plan::Candidate& c) { return c.pp == 4; }));
  plan::Candidate layout{.pp = 4};
  layout.micro_batches = 16;
  const auto training = [](World& world, const plan::Piece& piece) {
    train(world, std::size_t(piece.layers), {.pipeline = {.layers = piece.stage_layers}},
          std::size_t(piece.layout.micro_batches));
  };
  const plan::Machine machine = plan::known_machine("h100");
  plan::Piece whole{layout, search.layers, search.vocabulary};
  const plan::Estimate equal = plan::detail::whole_step(whole, search, machine, training);
  whole.stage_layers = plan::detail::stages_by_cost(layout, search, equal);
  REQUIRE(whole.stage_layers.size() == 4);
  CHECK(whole.stage_layers.back() < whole.stage_layers.front());
  CHECK(plan::detail::whole_step(whole, search, machine, training).seconds < equal.seconds);
  CHECK(plan::detail::whole_memory(whole, search, machine, training).device > 0);
}
