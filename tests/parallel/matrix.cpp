// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/data_parallel.hpp weft/parallel/tensor_parallel.hpp weft/parallel/pipeline_parallel.hpp
// covers: weft/parallel/wrapper.hpp weft/parallel/nesting.hpp weft/parallel/single_device.hpp
// The matrix of layouts on thread ranks, dense models: equal to one rank in loss, gradient norm, every gradient, validation loss
// and logits, in double to 1e-12.

#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/nesting.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/parallel/wrapper.hpp>

#include "support/matrix.hpp"

using namespace weft_test;

namespace {
const auto all = [](const MatrixEntry&) { return true; };
}

TEST_CASE("gpt: dp or ZeRO, tp, cp by a ring, pp") {
  CHECK(check_matrix<DenseRing, DenseMesh>(dense_ring, gpt_config(), all) >= 39);
}
TEST_CASE("llama: dp or ZeRO, sequence parallelism, cp by Ulysses, pp") {
  CHECK(check_matrix<DenseUlysses, DenseMesh>(dense_ulysses, llama_config(), all) >= 8);
}

TEST_CASE("gpt: dp x tp x pp under every schedule in every stage of ZeRO") {
  std::vector<MatrixEntry> entries;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zbv", "dualpipev"})
    for (int zero = 0; zero < 4; ++zero) entries.push_back({8, {.tp = 2, .pp = 2}, 4, schedule, zero});
  CHECK(check_matrix<DenseRing, DenseMesh>(entries, gpt_config(), all) == 28);
}

TEST_CASE("gpt: micro-batches of different shapes, dp or ZeRO, tp, cp, pp") {
  const std::vector<MicroBatch> shapes = {{1, 8}, {2, 4}, {1, 8}, {3, 4}, {2, 8}, {1, 4}, {2, 4}, {1, 8}};
  const auto share = [&](std::size_t rank, std::size_t ranks) {
    const std::size_t count = shapes.size() / ranks;
    Batch whole{.length = 8, .micro_batches = shapes.size(), .differing = shapes},
        mine{.length = 8, .micro_batches = count, .first_sequence = whole.sequences_before(rank * count)};
    mine.differing.assign(shapes.begin() + std::ptrdiff_t(rank * count), shapes.begin() + std::ptrdiff_t((rank + 1) * count));
    mine.sequences = mine.sequences_before(count);
    for (std::size_t i = 0; i < mine.tokens_before(count); ++i) {
      const std::size_t index = whole.tokens_before(rank * count) + i;
      mine.tokens.push_back(std::int32_t(key_of(3, index) % batch_vocabulary));
      mine.targets.push_back(index % 5 == 0 ? -1 : std::int32_t(key_of(4, index) % batch_vocabulary));
    }
    return mine;
  };
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> single(device, gpt_config());
  const double loss = single.train_step(share(0, 1));
  std::map<std::string, std::vector<double>> expected;
  single.for_each_state([&](ParameterState& state) {
    auto& values = expected[state.name()];
    values.resize(state.global().size());
    for_each_gradient(state, [&](std::size_t index, double value) { values[index] = value; });
  });
  for (const MatrixEntry& entry : {MatrixEntry{2, {}, 0, "1f1b", 3},
                                   {4, {.tp = 2, .cp = 2}, 0},
                                   {4, {.pp = 2}, 0, "zbv", 2},
                                   {4, {.cp = 2, .pp = 2}, 0, "interleaved"},
                                   {8, {.tp = 2, .cp = 2}, 0, "gpipe", 1}}) {
    std::mutex mutex;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            DenseMesh mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            options.pipeline.schedule = schedule::choose(entry.schedule);
            DenseRing model(mesh, gpt_config(), options);
            const auto data = mesh.comm(dp{});
            const double mine = model.train_step(share(std::size_t(data.rank()), std::size_t(data.size())));
            double worst = 0;
            model.for_each_state([&](ParameterState& state) {
              const auto& values = expected.at(state.name());
              double scale = 0;
              for (const double value : values) scale = std::max(scale, std::abs(value));
              for_each_gradient(state, [&](std::size_t index, double value) {
                worst = std::isfinite(value) ? std::max(worst, std::abs(value - values[index]) / scale) : INFINITY;
              });
            });
            std::lock_guard lock(mutex);
            INFO(entry.world << " ranks, " << entry.schedule << ", stage " << entry.zero);
            CHECK(std::abs(mine / loss - 1) <= 1e-12);
            CHECK(worst <= 1e-12);
          }) == 0);
  }
}
