// SPDX-License-Identifier: Apache-2.0
// A mixture of experts in every stage of ZeRO, with experts sharded over edp and the rest over dp; with rows sharded over tp
// between blocks; and without ExpertParallel, so that every rank has all experts.

#include "support/experts.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicMixtral<double>;
using Inner = ExpertParallel<PipelineParallel<Model>>;
const FoldedLayout few[] = {{2, {.ep = 2}, 2},
                            {4, {.ep = 2}, 2},
                            {4, {.tp = 2, .ep = 2}, 4},
                            {4, {.ep = 2, .pp = 2}, 4},
                            {8, {.tp = 2, .ep = 2, .etp = 2}, 2},
                            {8, {.tp = 2, .ep = 2, .pp = 2}, 4}};
}  // namespace

TEST_CASE("stages 1 to 3, sequence parallel") {
  const Reference reference = reference_of<Model>(mixtral_config());
  for (const int stage : {1, 2, 3})
    for (const FoldedLayout& layout : few) {
      INFO("stage " << stage);
      check_folded<FullyShardedDataParallel<SequenceParallel<Inner>>>(mixtral_config(), reference, layout, 1e-12,
                                                                      ModelOptions{.shard = {.stage = stage}});
    }
}

TEST_CASE("sequence parallel") {
  const Reference reference = reference_of<Model>(mixtral_config());
  for (const FoldedLayout& layout : folded_layouts)
    check_folded<DataParallel<SequenceParallel<Inner>>>(mixtral_config(), reference, layout, 1e-12);
}

TEST_CASE("without ExpertParallel") {
  using Composition = DataParallel<TensorParallel<PipelineParallel<Model>>>;
  const Reference reference = reference_of<Model>(mixtral_config());
  for (const Degrees& degrees : {Degrees{}, Degrees{.tp = 2}, Degrees{.pp = 2}, Degrees{.tp = 2, .pp = 2}})
    check_layout<Composition>(mixtral_config(), reference, 4, degrees, 2, 1e-12);
}

TEST_CASE("edp without a data wrapper") {
  const Reference reference = reference_of<Model>(mixtral_config());
  double largest = INFINITY;
  const int code = runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
    Mesh<tp, ep, edp> mesh(world, {.tp = 4, .ep = 2});
    const Difference mine = compare<TensorParallel<ExpertParallel<Model>>>(mesh, 0, 1, 2, mixtral_config(), reference);
    if (world.rank() == 0) largest = mine.largest();
  });
  CHECK(code == 0);
  CHECK(largest <= 1e-12);
}

TEST_CASE("in float") {
  const Reference reference = reference_of<models::Mixtral>(mixtral_config());
  check_folded<DataParallel<TensorParallel<ExpertParallel<PipelineParallel<models::Mixtral>>>>>(mixtral_config(), reference,
                                                                                                {4, {.tp = 2, .ep = 4}, 2}, 2e-5);
}

TEST_CASE("layouts that cannot be are refused before anything is sent") {
  std::string text;
  const auto refusal = [&](const models::MixtralConfig& config, const Degrees& degrees) {
    std::mutex mutex;
    runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
      try {
        Mesh<dp, tp, pp, ep, etp, edp> mesh(world, degrees);
        DataParallel<TensorParallel<Inner>> model(mesh, config);
      } catch (const LayoutError& error) {
        std::lock_guard lock(mutex);
        text = error.what();
      }
    });
    return text;
  };
  auto config = mixtral_config();
  config.experts = 6;
  CHECK(refusal(config, {.ep = 4}) == "weft: experts(6) % ep(4) != 0: a rank holds whole experts; ep can be 1, 2, 3 or 6");
  config.intermediate = 9;
  CHECK(refusal(config, {.etp = 2}) == "weft: intermediate(9) % etp(2) != 0: an expert is cut evenly; etp can be 1, 3 or 9");
  CHECK(refusal(config, {.ep = 3}) ==
        "weft: world(4) % (etp(1) * ep(3) * pp(1)) != 0: edp is what they leave of the world; etp * ep * pp can be 1, 2 or 4");
}
