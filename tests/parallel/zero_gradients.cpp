// SPDX-License-Identifier: Apache-2.0
// covers: weft/parallel/fsdp/flat_gradients.hpp weft/parallel/fsdp/flat_array.hpp
// Sums of gradients stored in the type of a 16-bit model: every micro-batch is added in float and rounded once, also with
// wrappers that have sums of their own pending. Training stays close to DataParallel's. Also the models that allow the option.

#include "support/parity.hpp"

#include <weft/engine/parameter_values.hpp>
#include <weft/parallel/fsdp/flat_array.hpp>
#include <weft/parallel/fsdp/flat_gradients.hpp>

using namespace weft_test;

namespace {

using Half = models::BasicGpt<bfloat16>;
const models::GptConfig config{.vocabulary = batch_vocabulary, .layers = 4, .width = 32, .heads = 4, .sequence = batch_length};

using Gradients = std::map<std::string, std::map<std::size_t, double>>;

struct Trained {
  std::vector<double> losses, norms;
  Gradients first;  // of the first step
};

template <class Composition, class Grid = Mesh<dp>>
Trained train(const ModelOptions& options, std::size_t micro_batches, int ranks = 2, const Degrees& degrees = {}, int steps = 1) {
  Trained out;
  std::mutex mutex;
  const int code = runtime::run(runtime::RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    Grid mesh(world, degrees);
    Composition model(mesh, config, options);
    optim::AdamW optimizer(model, {.learning_rate = 3e-3, .clip = 1});
    for (int step = 0; step < steps; ++step) {
      const double loss =
          model.train_step(make_batch(step, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), micro_batches));
      if (step == 0) {
        std::lock_guard lock(mutex);
        model.for_each_state([&](ParameterState& state) {
          for_each_gradient(state, [&](std::size_t index, double value) { out.first[state.name()][index] = value; });
        });
      }
      const double norm = optimizer.step().gradient_norm;
      if (world.rank() != 0) continue;
      out.losses.push_back(loss);
      out.norms.push_back(norm);
    }
  });
  CHECK(code == 0);
  return out;
}

// The largest difference, relative to the largest gradient of its parameter.
double difference(const Gradients& a, const Gradients& b) {
  double worst = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : a) {
    double scale = 0;
    const auto& others = b.at(name);
    REQUIRE(values.size() == others.size());
    for (const auto& [index, value] : values) scale = std::max(scale, std::abs(value));
    for (const auto& [index, value] : values) worst = std::max(worst, std::abs(value - others.at(index)) / scale);
  }
  return worst;
}

constexpr double half_a_bit = 1.0 / 512;  // of bfloat16's 8 bits

template <class M>
using Chosen = FullyShardedDataParallel<M>;

}  // namespace

TEST_CASE("one micro-batch: the float sum, rounded once") {
  const Trained exact = train<DataParallel<Half>>({}, 1);
  for (const int stage : {1, 2}) {
    const Trained rounded = train<Chosen<Half>>({.shard = {.stage = stage}}, 1);
    std::size_t differing = 0;
    for (const auto& [name, values] : exact.first)
      for (const auto& [index, value] : values) {
        REQUIRE(rounded.first.at(name).at(index) == double(float(bfloat16(float(value)))));
        differing += rounded.first.at(name).at(index) != value;
      }
    CHECK(differing > 0);
    CHECK(rounded.norms[0] == doctest::Approx(exact.norms[0]).epsilon(half_a_bit));
  }
  CHECK(train<Chosen<Half>>({.shard = {.stage = 3}}, 1).first == exact.first);
}

TEST_CASE("copies of shards add rounded sums, and round the sum of these; reduced in 16 bits, too") {
  const Trained exact = train<DataParallel<Half>>({}, 2, 4);
  for (const int stage : {1, 2, 3}) {
    const double copies = difference(
        exact.first,
        train<Chosen<Half>>({.shard = {.stage = stage, .replicate = 2}, .numerics = {.gradient = DataType::bfloat16}}, 2, 4)
            .first);
    const double narrow = difference(
        exact.first,
        train<Chosen<Half>>(
            {.shard = {.stage = stage}, .numerics = {.reduce = DataType::bfloat16, .gradient = DataType::bfloat16}}, 2, 4)
            .first);
    INFO("stage " << stage << ": copies " << copies << ", reduced in bfloat16 " << narrow);
    CHECK(copies > 0);
    CHECK(copies < 4 * half_a_bit);
    CHECK(narrow > 0);
    CHECK(narrow < 6 * half_a_bit);
  }
}

TEST_CASE("several micro-batches round once each, whatever inner wrappers owe") {
  using Sequence = SequenceParallel<PipelineParallel<Half>>;
  using Grid = Mesh<dp, tp, pp>;
  for (const Degrees& degrees : {Degrees{}, Degrees{.tp = 2}, Degrees{.pp = 2}}) {
    const int ranks = int(2 * degrees.tp * degrees.pp);
    const Trained exact = train<FullyShardedDataParallel<Sequence>, Grid>(
        {.shard = {.stage = 1}, .numerics = {.gradient = DataType::float32}}, 4, ranks, degrees);
    for (const int stage : {1, 2, 3}) {
      INFO("tp " << degrees.tp << ", pp " << degrees.pp << ", stage " << stage);
      const Trained rounded = train<FullyShardedDataParallel<Sequence>, Grid>(
          {.shard = {.stage = stage}, .numerics = {.gradient = DataType::bfloat16}}, 4, ranks, degrees);
      const double error = difference(exact.first, rounded.first);
      CHECK(error > 0);
      CHECK(error < 4 * half_a_bit);
    }
  }
}

TEST_CASE("training stays within 0.1 % of DataParallel's losses and 1 % of its norms") {
  const Trained exact = train<DataParallel<Half>>({}, 4, 2, {}, 12);
  for (const int stage : {1, 2, 3}) {
    const Trained rounded =
        train<Chosen<Half>>({.shard = {.stage = stage}, .numerics = {.gradient = DataType::bfloat16}}, 4, 2, {}, 12);
    double loss = 0, norm = 0;
    for (std::size_t step = 0; step < exact.losses.size(); ++step) {
      loss = std::max(loss, std::abs(rounded.losses[step] / exact.losses[step] - 1));
      norm = std::max(norm, std::abs(rounded.norms[step] / exact.norms[step] - 1));
    }
    INFO("stage " << stage << ": losses " << loss << ", norms " << norm);
    CHECK(loss < 0.001);
    CHECK(norm < 0.01);
    CHECK(rounded.losses != exact.losses);
  }
}

TEST_CASE("a step starts anew: rounded gradients of earlier steps are not added") {
  const Trained once = train<Chosen<Half>>({.shard = {.stage = 1}}, 2);
  Trained again;
  const int code = runtime::run(runtime::RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    Chosen<Half> model(mesh, config, {.shard = {.stage = 1}});
    for (int i = 0; i < 2; ++i) model.train_step(make_batch(0, std::size_t(world.rank()), 2, 2));
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    model.for_each_state([&](ParameterState& state) {
      for_each_gradient(state, [&](std::size_t index, double value) { again.first[state.name()][index] = value; });
    });
  });
  CHECK(code == 0);
  CHECK(again.first == once.first);
}

TEST_CASE("the policy is the option") {
  const Trained option = train<FullyShardedDataParallel<Half, zero::Stage3>>({.numerics = {.gradient = DataType::bfloat16}}, 2);
  CHECK(train<FullyShardedDataParallel<Half, zero::Stage3, MixedPrecision<bfloat16, float, bfloat16>>>({}, 2).first ==
        option.first);
}

TEST_CASE("kept gradients are read in the types of layers") {
  const int code = runtime::run(runtime::RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    Chosen<Half> model(mesh, config, {.shard = {.stage = 3}, .numerics = {.gradient = DataType::bfloat16}});
    optim::AdamW optimizer(model);
    model.train_step(make_batch(0, std::size_t(world.rank()), 2, 1));
    optimizer.step();
    model.for_each_state([&](ParameterState& state) {
      CHECK(state.kept_type() == DataType::float32);
      CHECK(state.kept_gradient_type() == DataType::bfloat16);
      if (state.kept() == 0) return;
      const detail::Buffer value = detail::value_of(model.device(), state), gradient = detail::gradient_of(model.device(), state);
      for (std::size_t i = 0; i < state.kept(); ++i) {
        REQUIRE(float(static_cast<const bfloat16*>(value.get())[i]) ==
                float(bfloat16(static_cast<const float*>(state.value().get())[i])));
        REQUIRE(static_cast<const float*>(gradient.get())[i] == float(static_cast<const bfloat16*>(state.gradient().get())[i]));
      }
    });
  });
  CHECK(code == 0);
}

TEST_CASE("refusals") {
  const auto refused = []<class M>(std::type_identity<M>, const ModelOptions& options) {
    std::string text;
    runtime::run(runtime::RunOptions{.ranks = 1}, [&](World& world) {
      Mesh<dp> mesh(world);
      try {
        M model(mesh, config, options);
      } catch (const Error& error) {
        text = error.what();
      }
    });
    return text;
  };
  const std::type_identity<Chosen<Half>> half;
  CHECK(refused(half, {.shard = {.stage = 2}, .numerics = {.gradient = DataType::float16}}) ==
        "weft: ModelOptions::numerics.gradient is float16: gradients of parameters in bfloat16 are kept in float32 or bfloat16");
  CHECK(refused(half, {.shard = {.stage = 1}, .numerics = {.reproducible = true, .gradient = DataType::bfloat16}}) ==
        "weft: ModelOptions: numerics.reproducible adds gradients in float32, so it cannot go with numerics.gradient in "
        "bfloat16; leave one of "
        "them out");
  CHECK(refused(half, {.shard = {.stage = 0}, .numerics = {.gradient = DataType::bfloat16}}) ==
        "weft: ModelOptions::numerics.gradient is bfloat16: DataParallel keeps gradients in the type in which they are added; "
        "leave it out, or use FullyShardedDataParallel");
}
