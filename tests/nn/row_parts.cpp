// SPDX-License-Identifier: Apache-2.0
// The loss in parts of the tokens (LossOptions::chunks) equals that of all logits at once: losses, gradients, norms and
// evaluations, in layouts of dp, tp, pp and ZeRO, tied and not; bits of reproducible runs; memory.
// covers: weft/nn/row_parts.hpp

#include <weft/nn/row_parts.hpp>
#include <weft/runtime/rehearse.hpp>

#include "support/message.hpp"
#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Gpt = models::BasicGpt<double>;
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Gpt>>>;

models::GptConfig small(bool tied) {
  models::GptConfig config = gpt_config();
  config.layers = 2;
  config.tied = tied;
  return config;
}

}  // namespace

TEST_CASE("the parts of rows are nearly equal, and rows_of is a view of them") {
  DefaultDevice device;
  for (const std::size_t rows : {1, 2, 7, 12})
    for (const std::size_t parts : {1, 2, 3, 5, 12}) {
      std::vector<std::size_t> seen;
      std::size_t next = 0;
      detail::for_each_part(rows, parts, [&](std::size_t first, std::size_t count) {
        CHECK(first == next);
        CHECK(count > 0);
        next += count;
        seen.push_back(count);
      });
      CHECK(next == rows);
      CHECK(seen.size() <= parts);
      std::vector<std::size_t> again;  // the number of parts gives the same parts
      detail::for_each_part(rows, seen.size(), [&](std::size_t, std::size_t count) { again.push_back(count); });
      CHECK(again == seen);
    }
  const Tensor<double, DefaultDevice::execution_space> x(device, {4, 3});
  for (std::size_t i = 0; i < 12; ++i) x.data()[i] = double(i);
  const auto inner = detail::rows_of(detail::rows_of(x, 1, 3), 1, 2);
  CHECK(inner.shape() == Shape{2, 3});
  CHECK(inner.data() == x.data() + 6);
}

TEST_CASE("the loss in parts equals the whole one in every layout") {
  for (const bool tied : {true, false}) {
    const models::GptConfig config = small(tied);
    const Reference reference = reference_of<Gpt>(config);
    struct Layout {
      std::size_t world;
      Degrees degrees;
      std::size_t micro_batches, chunks;
      int stage;
    };
    for (const Layout& layout :
         {Layout{1, {}, 1, 3, 0}, Layout{1, {}, 2, 1000, 0}, Layout{2, {}, 2, 2, 3}, Layout{2, {.tp = 2}, 1, 5, 0},
          Layout{4, {.tp = 4}, 2, 4, 0}, Layout{2, {.pp = 2}, 2, 3, 0}, Layout{8, {.tp = 2, .pp = 2}, 1, 2, 1}}) {
      ModelOptions options{.shard = {.stage = layout.stage}};
      options.loss.chunks = layout.chunks;
      check_layout<Composition>(config, reference, layout.world, layout.degrees, layout.micro_batches, 1e-12, options);
    }
  }
}

TEST_CASE("also where cp and sequence parallelism cut the tokens") {
  using Llama = models::BasicLlama<double>;
  models::LlamaConfig config = llama_config();
  config.layers = 2;
  DefaultDevice device;
  SingleDevice<Llama> alone(device, config);
  optim::Sgd of_one(alone, {.learning_rate = 0.1});
  std::vector<double> expected;
  for (int step = 0; step < 2; ++step) {
    expected.push_back(alone.train_step(make_batch(step, 0, 1, 1)));
    expected.push_back(of_one.step().gradient_norm);
    expected.push_back(alone.evaluate(make_batch(step, 0, 1, 1)));
  }
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
          Mesh<dp, cp, tp> mesh(world, {.tp = 2, .cp = 2});
          DataParallel<ContextParallel<SequenceParallel<Llama>>> model(mesh, config, {.loss = {.chunks = 3}});
          optim::Sgd optimizer(model, {.learning_rate = 0.1});
          std::vector<double> seen;
          for (int step = 0; step < 2; ++step) {
            seen.push_back(model.train_step(make_batch(step, 0, 1, 1)));
            seen.push_back(optimizer.step().gradient_norm);
            seen.push_back(model.evaluate(make_batch(step, 0, 1, 1)));
          }
          for (std::size_t i = 0; i < seen.size(); ++i)
            if (!(std::abs(seen[i] / expected[i] - 1) < 1e-12)) throw Error("number " + std::to_string(i) + " differs");
        }) == 0);
}

TEST_CASE("reproducible runs keep their bits for each number of chunks, and another number differs by rounding at most") {
  const auto losses_of = [](std::size_t world, const Degrees& degrees, std::size_t micro_batches, std::size_t chunks) {
    std::vector<double> losses;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(world)}, [&](World& rank) {
            Mesh<dp, tp, pp> mesh(rank, degrees);
            Composition model(mesh, small(true), {.numerics = {.reproducible = true}, .loss = {.chunks = chunks}});
            optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1});
            const auto data = mesh.comm(dp{});
            std::vector<double> mine;
            for (int step = 0; step < 3; ++step) {
              mine.push_back(
                  model.train_step(make_batch(step, std::size_t(data.rank()), std::size_t(data.size()), micro_batches)));
              mine.push_back(optimizer.step().gradient_norm);
            }
            if (rank.rank() == 0) losses = mine;
          }) == 0);
    return losses;
  };
  const std::vector<double> expected = losses_of(1, {}, 4, 3), whole = losses_of(1, {}, 4, 1);
  CHECK(losses_of(2, {}, 2, 3) == expected);
  CHECK(losses_of(4, {.pp = 2}, 2, 3) == expected);
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(std::abs(expected[i] / whole[i] - 1) < 1e-9);
}

TEST_CASE("schedules that split backward compute the logits again from the table that ZeRO-3 gathers") {
  using Split = FullyShardedDataParallel<PipelineParallel<Gpt, schedule::ZeroBubbleH1>>;
  const auto losses_of = [](std::size_t chunks, bool tied) {
    std::vector<double> losses;
    CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& rank) {
            Mesh<dp, pp> mesh(rank, {.pp = 2});
            Split model(mesh, small(tied), {.shard = {.stage = 3}, .loss = {.chunks = chunks}});
            optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1});
            std::vector<double> mine;
            for (int step = 0; step < 3; ++step) {
              mine.push_back(model.train_step(make_batch(step, std::size_t(mesh.comm(dp{}).rank()), 2, 4)));
              mine.push_back(optimizer.step().gradient_norm);
            }
            if (rank.rank() == 0) losses = mine;
          }) == 0);
    return losses;
  };
  for (const bool tied : {true, false}) {
    const std::vector<double> whole = losses_of(1, tied), parts = losses_of(3, tied);
    REQUIRE(whole.size() == 6);
    REQUIRE(parts.size() == 6);
    for (std::size_t i = 0; i < 6; ++i) CHECK(std::abs(parts[i] / whole[i] - 1) < 1e-12);
  }
}

TEST_CASE("sums of fixed terms keep their bits for each tp, in parts too") {
  models::GptConfig config = small(true);
  config.vocabulary = 20;  // of equal terms
  const auto losses_of = [&config](std::size_t tp_degree) {
    std::vector<double> losses;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(tp_degree)}, [&](World& rank) {
            Mesh<dp, tp, pp> mesh(rank, {.tp = tp_degree});
            Composition model(mesh, config,
                              {.numerics = {.reproducible = true, .reproducible_degree = 2}, .loss = {.chunks = 3}});
            optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1});
            std::vector<double> mine;
            for (int step = 0; step < 3; ++step) {
              mine.push_back(model.train_step(make_batch(step, 0, 1, 2)));
              mine.push_back(optimizer.step().gradient_norm);
            }
            if (rank.rank() == 0) losses = mine;
          }) == 0);
    return losses;
  };
  const std::vector<double> one = losses_of(1);
  REQUIRE(one.size() == 6);
  CHECK(losses_of(2) == one);
}

TEST_CASE("the peak of a rehearsal falls by the logits, and 0 chunks are refused") {
  using Large = DataParallel<TensorParallel<PipelineParallel<models::Gpt>>>;
  constexpr std::size_t vocabulary = 8192, tokens = 4 * 64;
  const auto peak = [&](std::size_t chunks) {
    return rehearse({.ranks = 2},
                    [&](World& world) {
                      const Mesh<dp, tp, pp> mesh(world, {.tp = 2});
                      Large model(mesh, {.vocabulary = vocabulary, .layers = 1, .width = 16, .heads = 2, .sequence = 64},
                                  {.loss = {.chunks = chunks}});
                      optim::AdamW optimizer(model);
                      Batch batch{.sequences = 4, .length = 64, .micro_batches = 1};
                      batch.tokens.assign(tokens, 1);
                      batch.targets.assign(tokens, 2);
                      model.train_step(batch);
                      optimizer.step();
                    })
        .peak;
  };
  const std::size_t logits = tokens * vocabulary / 2 * sizeof(float);
  CHECK(peak(1) > peak(8) + logits * 3 / 4);
  DefaultDevice device;
  CHECK(message<UsageError>([&] { SingleDevice<Gpt>(device, small(true), {.loss = {.chunks = 0}}); }) ==
        "weft: ModelOptions::loss.chunks is 0: the loss is computed in 1 part (all logits at once) or more");
}
