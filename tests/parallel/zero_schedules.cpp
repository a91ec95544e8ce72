// SPDX-License-Identifier: Apache-2.0
// ZeRO under every pipeline schedule and with sequence parallelism equals one rank; so does accumulation with one reduction. With
// one micro-batch every stage gives DataParallel's bits, in float and in bfloat16 with its master copy, step after step, if sums
// of gradients are in float.

#include <weft/engine/parameter_values.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Model = models::BasicGpt<double>;

void check_schedule(const Reference& reference, int stage, const char* name) {
  INFO("stage " << stage << ", " << name);
  using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
  const ModelOptions options{.shard = {.stage = stage}, .pipeline = {.schedule = schedule::choose(name)}};
  check_layout<Composition>(gpt_config(), reference, 4, {.pp = 2}, 4, 1e-12, options);
  if (name != std::string("dualpipev"))
    check_layout<Composition>(gpt_config(), reference, 8, {.pp = 4}, 4, 1e-12,
                              options);  // the schedule needs twice as many micro-batches as stages
}

// Losses, gradient norms and every kept parameter after some steps, as bits.
template <class Composition, class Grid = Mesh<dp>>
std::vector<double> run_of(int ranks, const ModelOptions& options = {}, Degrees degrees = {}, std::size_t layers = 0) {
  std::vector<double> losses;
  std::map<std::pair<std::string, std::size_t>, double> values;
  std::mutex mutex;
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
    Grid mesh(world, degrees);
    auto config = gpt_config();
    if (layers != 0) config.layers = layers;
    Composition model(mesh, config, options);
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    const int shares = mesh.size(dp{});
    for (int step = 0; step < 4; ++step) {
      const double loss = model.train_step(make_batch(step, mesh.rank(dp{}), shares, degrees.pp == 1 ? 1 : 4));
      optimizer.step();
      if (world.rank() == 0) losses.push_back(loss);
    }
    std::lock_guard lock(mutex);
    model.for_each_state([&](ParameterState& state) {
      const detail::Buffer value = detail::value_of(model.device(), state);
      detail::dispatch_real(state.type(), [&](auto zero) {
        for (const auto& run : state.runs())
          for (std::size_t i = 0; i < run.length; ++i)
            values[{state.name(), run.global + i}] =
                double(accumulate_t<decltype(zero)>(static_cast<const decltype(zero)*>(value.get())[run.local + i]));
      });
    });
  });
  CHECK(code == 0);
  for (const auto& [key, value] : values) losses.push_back(value);
  return losses;
}

template <class M>
void check_bits() {
  for (const int ranks : {2, 4}) {
    const auto expected = run_of<DataParallel<M>>(ranks);
    CHECK(run_of<FullyShardedDataParallel<M, zero::Stage1>>(ranks, {.numerics = {.gradient = DataType::float32}}) == expected);
    CHECK(run_of<FullyShardedDataParallel<M, zero::Stage2>>(ranks, {.numerics = {.gradient = DataType::float32}}) == expected);
    CHECK(run_of<FullyShardedDataParallel<M, zero::Stage3>>(ranks) == expected);
  }
}

}  // namespace

TEST_CASE("every stage under every schedule") {
  const Reference reference = reference_of<Model>(gpt_config());
  for (const int stage : {1, 2, 3})
    for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zbv", "dualpipev"})
      check_schedule(reference, stage, name);
}

TEST_CASE("beside sequence parallelism") {
  const Reference reference = reference_of<Model>(gpt_config());
  using Composition = FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model>>, zero::Stage3>;
  check_layout<Composition>(gpt_config(), reference, 4, {.tp = 2}, 2, 1e-12);
  check_layout<Composition>(gpt_config(), reference, 8, {.tp = 2, .pp = 2}, 4, 1e-12);
}

TEST_CASE("bits of DataParallel in float") { check_bits<models::BasicGpt<float>>(); }
TEST_CASE("bits of DataParallel in bfloat16") { check_bits<models::BasicGpt<bfloat16>>(); }

TEST_CASE("bits of DataParallel over several steps of a pipeline: gathers ahead have the optimizer's results") {
  using M = models::BasicGpt<float>;
  for (const char* name : {"1f1b", "interleaved", "zb-h1"}) {
    INFO(name);
    ModelOptions options{.pipeline = {.schedule = schedule::choose(name)}};
    options.numerics.gradient = DataType::float32;
    const auto expected = run_of<DataParallel<PipelineParallel<M>>, Mesh<dp, pp>>(4, options, {.pp = 2});
    options.shard.reduce_each_micro_batch = false;
    for (const int stage : {1, 2, 3}) {
      INFO("stage " << stage);
      options.shard.stage = stage;
      CHECK(run_of<FullyShardedDataParallel<PipelineParallel<M>>, Mesh<dp, pp>>(4, options, {.pp = 2}) == expected);
    }
  }
}

TEST_CASE("more gathers and reductions at once than a thread rank may be ahead of another") {
  using M = models::BasicGpt<float>;
  const ModelOptions options{.numerics = {.gradient = DataType::float32}};
  CHECK(run_of<FullyShardedDataParallel<M, zero::Stage1>>(4, options, {}, 24) == run_of<DataParallel<M>>(4, {}, {}, 24));
}

TEST_CASE("one reduction a step gives the bits of DataParallel with several micro-batches") {
  std::vector<double> losses[2];
  const auto train = [&]<class Composition>(std::type_identity<Composition>, std::vector<double>& out) {
    const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
      Mesh<dp> mesh(world);
      ModelOptions options;
      options.shard.reduce_each_micro_batch = false;
      Composition model(mesh, gpt_config(), options);
      optim::Sgd optimizer(model, {.learning_rate = 0.1});
      for (int step = 0; step < 3; ++step) {
        const double loss = model.train_step(make_batch(step, world.rank(), 2, 4));
        optimizer.step();
        if (world.rank() == 0) out.push_back(loss);
      }
    });
    CHECK(code == 0);
  };
  train(std::type_identity<DataParallel<Model>>{}, losses[0]);
  train(std::type_identity<FullyShardedDataParallel<Model, zero::Stage3>>{}, losses[1]);
  CHECK(losses[0] == losses[1]);
}
