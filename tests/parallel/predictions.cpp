// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/predictions.hpp weft/pipeline/logits.hpp
// What a language model predicts for a batch: the logits of every token in the order of the batch, equal to one rank's in every
// layout, whole on every rank or this rank's share.

#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/predictions.hpp>

#include "support/matrix.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicGpt<double>;
using Composition = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>, Ring>>;
}  // namespace

TEST_CASE("predictions of every layout are those of one rank") {
  models::GptConfig config = gpt_config();
  config.layers = 4;
  DefaultDevice device;
  SingleDevice<Model> one(device, config);
  const Batch whole = make_batch(0, 0, 1, 2);
  const Prediction expected = one.predict(whole);
  REQUIRE(expected.shape == Shape{batch_sequences * batch_length, batch_vocabulary});
  const auto first = one.logits(std::span(whole.tokens).first(batch_length));  // of the first sequence
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(std::abs(first[i] - expected.values[i]) <= 1e-12);

  const std::vector<MatrixEntry> layouts = {{2, {}, 2},
                                            {4, {}, 1, "1f1b", 3},
                                            {2, {.tp = 2}, 4},
                                            {2, {.cp = 2}, 2},
                                            {2, {.pp = 2}, 4, "interleaved"},
                                            {4, {.tp = 2, .cp = 2}, 1},
                                            {4, {.cp = 2}, 2, "1f1b", 2},
                                            {8, {.tp = 2, .pp = 2}, 2, "zbv", 3},
                                            {8, {.tp = 2, .cp = 2, .pp = 2}, 4, "1f1b"}};
  for (const MatrixEntry& entry : layouts) {
    INFO("world " << entry.world << ", tp(" << entry.degrees.tp << ") cp(" << entry.degrees.cp << ") pp(" << entry.degrees.pp
                  << ")");
    std::mutex mutex;
    double largest = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            DenseMesh mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            options.pipeline.schedule = schedule::choose(entry.schedule);
            Composition model(mesh, config, options);
            const std::size_t rank = std::size_t(mesh.rank(dp{})), ranks = std::size_t(mesh.size(dp{}));
            const Batch batch = make_batch(0, rank, ranks, entry.micro_batches);
            const Prediction all = model.predict(batch, Gather::whole), mine = model.predict(batch);
            std::lock_guard lock(mutex);
            REQUIRE(all.shape == expected.shape);
            REQUIRE(all.values.size() == expected.values.size());
            for (std::size_t i = 0; i < all.values.size(); ++i)
              largest = std::max(largest, std::abs(all.values[i] - expected.values[i]));
            REQUIRE(mine.shape == Shape{expected.shape[0] / ranks, batch_vocabulary});
            for (std::size_t i = 0; i < mine.values.size(); ++i)
              largest = std::max(largest, std::abs(mine.values[i] - expected.values[rank * mine.values.size() + i]));
          }) == 0);
    CHECK(largest <= 1e-12);
  }
}
