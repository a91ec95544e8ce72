// SPDX-License-Identifier: Apache-2.0
// Whole training steps on thread ranks under ThreadSanitizer: every stage of ZeRO combined with context, tensor and pipeline
// parallelism, under schedules that interleave chunks and halves of backward, so that hooks run in every order. Each rank's part
// of Kokkos is its own single thread, so all synchronisation between ranks is weft's.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <weft/parallel/hook/power_sgd.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/weft.hpp>

#include "support/batches.hpp"

using namespace weft;

namespace {

using Model = models::BasicGpt<double>;  // double uses weft's matrix products; the sanitizer cannot see the synchronisation of
                                         // libraries

using Inner = SequenceParallel<PipelineParallel<Model>>;
using Plain = FullyShardedDataParallel<Inner>;
using InContext = FullyShardedDataParallel<ContextParallel<Inner>>;

template <class Composition, class Axes>
bool train(Axes, int ranks, const Degrees& degrees, int stage, const char* name, std::size_t micro_batches, bool ulysses = false,
           ModelOptions options = {}) {
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    Mesh mesh(world, Axes(), degrees);
    const models::GptConfig config{.vocabulary = weft_test::batch_vocabulary,
                                   .layers = 4,
                                   .width = 16,
                                   .heads = 4,
                                   .sequence = weft_test::batch_length,
                                   .dropout = 0.1};
    ModelOptions own = options;
    own.data.first_bucket_bytes = 4096;
    own.data.bucket_bytes = 16384;
    own.shard.stage = stage;
    own.context = ulysses ? ContextMethod::ulysses : ContextMethod::ring;
    own.pipeline.schedule = schedule::choose(name);
    Composition model(mesh, config, own);
    optim::AdamW optimizer(model, {.learning_rate = 1e-3, .clip = 1.0});
    for (int step = 0; step < 2; ++step) {
      const Batch batch =
          weft_test::make_batch(std::uint64_t(step), std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), micro_batches);
      model.train_step(batch);
      optimizer.step();
      model.evaluate(batch);
    }
    model.next_logits(weft_test::prompt());
  });
  if (code != 0) std::fprintf(stderr, "%d ranks, stage %d, schedule %s: exit code %d\n", ranks, stage, name, code);
  return code == 0;
}

}  // namespace

int main() {
  Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(8).set_disable_warnings(true));
  bool good = true;
  for (int stage = 0; stage <= 3; ++stage) {
    good = train<Plain>(axes<dp, tp, pp>, 2, {}, stage, "1f1b", 2) && good;
    good = train<Plain>(axes<dp, tp, pp>, 4, {.tp = 2}, stage, "1f1b", 2) && good;
    for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zbv", "dualpipev"})
      good = train<Plain>(axes<dp, tp, pp>, 4, {.pp = 2}, stage, name, 4) && good;
    good = train<Plain>(axes<dp, tp, pp>, 8, {.tp = 2, .pp = 2}, stage, "zbv", 4) && good;
    for (const bool ulysses : {false, true}) {
      good = train<InContext>(axes<dp, cp, tp, pp>, 4, {.cp = 4}, stage, "1f1b", 2, ulysses) && good;
      good = train<InContext>(axes<dp, cp, tp, pp>, 8, {.tp = 2, .cp = 2}, stage, "zb-h1", 2, ulysses) && good;
    }
  }
  // The options of data-parallel ranks.
  for (int stage = 0; stage <= 3; ++stage) {
    const auto choose = [&](const ModelOptions& options) {
      good = train<Plain>(axes<dp, tp, pp>, 4, {}, stage, "1f1b", 2, false, options) && good;
    };
    good = train<Plain>(axes<dp, tp, pp>, 8, {.pp = 2}, stage, "zb-h1", 2, false, {.numerics = {.reproducible = true}}) && good;
    choose({.numerics = {.reproducible = true}});
    choose({.numerics = {.reduce = DataType::bfloat16}});
    choose({.shard = {.offload = Offload::host()}});
    if (stage > 0) choose({.shard = {.replicate = 2}});
    if (stage > 0) choose({.shard = {.quantised_reduce = 2}});
    if (stage == 3) choose({.shard = {.quantised_gather = true, .secondary = 2}});
  }
  good = train<Plain>(axes<dp, tp, pp>, 4, {}, 0, "1f1b", 2, false,
                      {.data = {.hook = hook::make<hook::PowerSgd>(hook::PowerSgdOptions{.rank = 2})}}) &&
         good;
  if (!good) return 1;
  std::puts("no races were found");
  return 0;
}
