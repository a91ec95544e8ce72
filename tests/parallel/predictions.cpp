// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/forward_table.hpp weft/pipeline/model_use.hpp weft/pipeline/model_batch.hpp
// covers: weft/pipeline/predictions.hpp weft/pipeline/logits.hpp
// The predictions of a language model for a batch: the logits of every token in the order of the batch, equal to one rank's in
// every layout, whole on every rank or this rank's share.

#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/logits.hpp>
#include <weft/pipeline/model_batch.hpp>
#include <weft/pipeline/model_use.hpp>
#include <weft/pipeline/predictions.hpp>

#include "support/matrix.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {
using Model = models::BasicGpt<double>;
using Composition = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>, Ring>>;

inline constexpr data::Field<"x", float> x_field;
inline constexpr data::Field<"scale", float> scale_field;
inline constexpr data::Field<"y", float> y_field;
inline constexpr data::Field<"path", float, data::SequenceDim<1>> path_field;

// A Module whose predict reads a field that its forward does not.
struct Scaled : Module<Scaled> {
  using scalar = float;
  using Batch = FieldBatch<x_field, scale_field, y_field, path_field>;
  struct Config {};
  Linear<> linear;
  Scaled(const auto& context, const Config&) : linear(context / "linear", 3, 2) {}
  auto forward(const auto& x) const { return linear(x); }
  auto predict(const auto& batch) const { return times_column(forward(batch[x_field]), batch[scale_field]); }
  auto loss(const auto& batch) const { return mse(predict(batch), batch[y_field]); }
};
}  // namespace

TEST_CASE("a batch for predict and forward needs the fields that they read") {
  DefaultDevice device;
  SingleDevice<Scaled> model(device, {});
  Scaled::Batch batch{.samples = 4, .micro_batches = 2};
  batch[x_field].assign({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, {3});
  CHECK(message<UsageError>([&] { model.predict(batch); }) ==
        "weft: batch: field scale has no values, and the model reads it: predict and forward need the fields that they read, "
        "train_step and evaluate need all");
  batch[scale_field].assign({1, 1, 2, 2}, {});
  const Prediction first = model.predict(batch);
  CHECK(first.shape == Shape{4, 2});
  CHECK(message<ShapeError>([&] { model.evaluate(batch); }) == "weft: batch: field y has 0 samples of [], the batch has 4");
  CHECK(message<ShapeError>([&] { model.train_step(batch); }) == "weft: batch: field y has 0 samples of [], the batch has 4");
  batch.micro_batches = 1;
  CHECK(model.forward(batch).output().shape() == Shape{4, 2});
  model.discard_gradients();
  batch.micro_batches = 2;

  // Assigned again: the same samples, then more of them, in the batch's memory.
  batch[scale_field].assign({2, 2, 4, 4});
  const Prediction twice = model.predict(batch);
  for (std::size_t i = 0; i < twice.values.size(); ++i) CHECK(twice.values[i] == 2 * first.values[i]);
  batch[scale_field].writable()[0] = 1;
  CHECK(model.predict(batch).values[0] == first.values[0]);
  CHECK(message<ShapeError>([&] {
          batch[x_field].assign({1, 2});
        }) == "weft: batch: field x has 2 values, which are not whole samples of [3]");
  batch[x_field].assign({1, 2, 3});
  CHECK(message<ShapeError>([&] { model.predict(batch); }) == "weft: batch: field x has 1 samples of [3], the batch has 4");
}

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
            Batch inputs = batch;  // a prediction needs no targets
            inputs.targets.clear();
            const Prediction all = model.predict(batch, Gather::whole), mine = model.predict(inputs);
            REQUIRE(model.predict(inputs, Gather::whole).values == all.values);
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
