// SPDX-License-Identifier: Apache-2.0
// A mixture of experts in a reproducible run has the bits of one rank, too: experts on the ranks of several data-parallel ranks,
// which add each data-parallel rank's micro-batch as a separate term. Combined with tp for one placement over tp, and with
// remaining nodes of the tree.

#include "support/reproducible.hpp"

using namespace weft_test;

namespace {

using Model = models::BasicMixtral<float>;

models::MixtralConfig config() {
  return {.vocabulary = reproducible_vocabulary,
          .layers = 4,
          .width = 16,
          .heads = 2,
          .kv_heads = 1,
          .intermediate = 12,
          .sequence = reproducible_length,
          .experts = 4,
          .top_k = 2,
          .auxiliary_loss = 0.1,
          .z_loss = 0.01,
          .dropout = 0.1,
          .standard_deviation = 0.2};
}

struct Layout {
  std::size_t data;
  Degrees degrees;
  int stage = 0;
  const char* schedule = "1f1b";
};

Run20 run_of(const Layout& layout, std::size_t micro_batches) {
  using Composition = FullyShardedDataParallel<TensorParallel<ExpertParallel<PipelineParallel<Model>>>, Reproducible>;
  Run20 run;
  std::mutex mutex;
  const Degrees& d = layout.degrees;
  const int code =
      runtime::run(runtime::RunOptions{.ranks = int(layout.data * d.tp * d.pp), .threads_per_rank = 1}, [&](World& world) {
        Mesh<dp, tp, pp, ep, etp, edp> mesh(world, d);
        Composition model(mesh, config(),
                          {.shard = {.stage = layout.stage}, .pipeline = {.schedule = schedule::choose(layout.schedule)}});
        train_20(model, mesh.comm(dp{}).rank(), layout.data, micro_batches, run, mutex, world.rank() == 0);
      });
  CHECK(code == 0);
  return run;
}

Run20 one_rank(std::size_t micro_batches) {
  Run20 run;
  std::mutex mutex;
  DefaultDevice device;
  SingleDevice<Model> model(device, config(), {.numerics = {.reproducible = true}});
  train_20(model, 0, 1, micro_batches, run, mutex, true);
  return run;
}

void check(const Run20& expected, std::size_t micro_batches, std::initializer_list<Layout> layouts) {
  for (const Layout& layout : layouts) {
    const Degrees& d = layout.degrees;
    INFO("dp " << layout.data << ", tp " << d.tp << ", pp " << d.pp << ", ep " << d.ep << ", etp " << d.etp << ", stage "
               << layout.stage << ", " << layout.schedule);
    const Run20 run = run_of(layout, micro_batches);
    CHECK(run.losses == expected.losses);
    CHECK(run.norms == expected.norms);
    CHECK(run.weights == expected.weights);
  }
}

}  // namespace

TEST_CASE("experts over data ranks, 8 micro-batches") {
  check(one_rank(8), 8,
        {{1, {}},
         {2, {}, 2},
         {2, {.ep = 2}},
         {4, {.ep = 4}, 1},
         {4, {.ep = 2}},
         {4, {.ep = 2}, 2},
         {8, {.ep = 4}, 3},
         {2, {.ep = 2, .pp = 2}, 3, "zb-h1"},
         {4, {.ep = 2, .pp = 2}, 1, "zbv"},
         {2, {.ep = 2, .pp = 2}, 0, "gpipe"}});
}

TEST_CASE("6 micro-batches: data ranks, and ranks of edp, hand on several nodes") {
  check(one_rank(6), 6, {{2, {.ep = 2}, 3}, {3, {}, 1}, {6, {.ep = 2}}, {6, {.ep = 2}, 2}});
}

TEST_CASE("beside tp: experts over both, and cut over etp") {
  check(run_of({1, {.tp = 2, .ep = 2}}, 8), 8, {{2, {.tp = 2, .ep = 2}, 3}, {2, {.tp = 2, .ep = 4}}, {4, {.tp = 2, .ep = 4}, 2}});
  check(run_of({1, {.tp = 2, .etp = 2}}, 8), 8, {{2, {.tp = 2, .ep = 2, .etp = 2}}, {4, {.tp = 2, .ep = 2, .etp = 2}, 3}});
}

TEST_CASE("parts of a data rank's gradient of an expert are refused") {
  std::string text;
  std::mutex mutex;
  runtime::run(runtime::RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp, tp, ep, etp, edp> mesh(world, {.tp = 2});
    try {
      DataParallel<TensorParallel<ExpertParallel<Model>>, Reproducible> model(mesh, config());
    } catch (const UsageError& error) {
      std::lock_guard lock(mutex);
      text = error.what();
    }
  });
  CHECK(text ==
        "weft: reproducible: dp(1) % edp(2) != 0: a data rank's gradients of an expert are in parts on several ranks of edp; use "
        "ep * etp that is a multiple of cp * tp");
}
