// SPDX-License-Identifier: Apache-2.0
// covers: weft/autograd/child_tape.hpp
// A model that is one Module under FullyShardedDataParallel. Its children are gathered when they are called and released
// afterwards, and their gradients are reduced when their backward ends. Every layout equals one rank, with children that are used
// twice, recomputed and frozen. The memory of a step is that of a few children, and frozen children in front have no backward.

#include <weft/autograd/child_tape.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

#include <atomic>

using namespace weft_test;

namespace {

struct Wide : Module<Wide> {
  LayerNorm norm;
  Linear<Column> up;
  Linear<Row> down;
  Wide(const auto& context, std::size_t width)
      : norm(context / "norm", width),
        up(context / "up", width, 2 * width, {.standard_deviation = 0.3}),
        down(context / "down", 2 * width, width, {.standard_deviation = 0.3}) {}
  auto forward(const auto& x) const { return x + to_layout_of(x, down(Activation()(up(norm(x))))); }
};

std::atomic<std::size_t> backwards{0};
/// A user-defined layer that counts its backwards.
struct CountedLinear : Primitive<CountedLinear> {
  Linear<> inner;
  CountedLinear(const auto& context, std::size_t in, std::size_t out) : inner(context, in, out, {.standard_deviation = 0.5}) {}
  template <class Context, class X>
  auto forward(const Context& context, const X& x) const {
    return inner.forward(context, x);
  }
  template <class Context, class Saved, class G>
  auto backward_input(const Context& context, Saved saved, const G& g) {
    ++backwards;
    return inner.backward_input(context, std::move(saved), g);
  }
  template <class Context, class Deferred>
  void backward_weight(const Context& context, Deferred deferred) {
    inner.backward_weight(context, std::move(deferred));
  }
};

struct DeepConfig {
  std::size_t in = 6, width = 8, out = 3, blocks = 3;
};
/// With parameters at both ends, children in a vector, one that is used twice, one that is recomputed, and layers.
struct Deep : Module<Deep> {
  static constexpr bool predicts = true;
  using scalar = double;
  using Config = DeepConfig;
  using Batch = Mlp::Batch;

  CountedLinear encoder;
  Parameter<> gain;
  std::vector<Wide> blocks;
  Wide shared, again;
  Parameter<> table;
  Deep(const auto& context, const Config& config)
      : encoder(context / "encoder", config.in, config.width),
        gain(context, "gain", {config.width}, normal(1)),
        shared(context / "shared", config.width),
        again(context / "again", config.width),
        table(context, "table", {config.out, config.width}, normal(0.5)) {
    for (std::size_t i = 0; i < config.blocks; ++i) blocks.emplace_back(context / "blocks" / std::to_string(i), config.width);
  }
  auto forward(const auto& input) const {
    auto x = shared(encoder(to<Invariant<tp>>(input)) * gain);
    for (const Wide& block : blocks) x = block(x);
    x = recompute([this](const auto& y) { return again(y); }, x);
    return matmul(shared(x) * gain, table);
  }
  auto loss(const auto& batch) const {
    return sum_losses(HalfSquares()((*this)(batch[input_field]) - to<Invariant<tp>>(batch[wanted_field])));
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(step, rank, ranks, micro_batches);
    fill_field(batch, input_field, 1, {config.in});
    fill_field(batch, wanted_field, 2, {config.out});
    return batch;
  }
};

/// Peaks of the second half of some steps, in bytes above the memory kept between them.
template <class Composition>
std::size_t peak(const DeepConfig& config, int stage) {
  std::size_t largest = 0;
  std::mutex mutex;
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
          Mesh<dp> mesh(world);
          Composition model(mesh, config, {.shard = {.stage = stage}});
          optim::Sgd optimizer(model, {.learning_rate = 1e-3});
          auto batch = Deep::make_batch(config, 0, std::size_t(world.rank()), 4, 1);
          auto& arena = world.device().arena();
          for (int step = 0; step < 4; ++step) {
            const std::size_t kept = arena.use().current;
            arena.reset_peak();
            model.train_step(batch);
            const std::size_t more = arena.use().peak - kept;
            optimizer.step();
            ++batch.step;
            std::lock_guard lock(mutex);
            if (step >= 2) largest = std::max(largest, more);
          }
        }) == 0);
  return largest;
}

}  // namespace

TEST_CASE("a Module with children under every stage of ZeRO equals one rank, values and every gradient") {
  using Layout = FullyShardedDataParallel<TensorParallel<Deep>>;
  const DeepConfig config;
  const FieldReference reference = field_reference<Deep>(config, 1);
  const std::vector<MatrixEntry> layouts = {
      {1, {}, 2, "1f1b", 3}, {2, {}, 1, "1f1b", 0},        {2, {}, 2, "1f1b", 1},        {2, {}, 1, "1f1b", 2},
      {4, {}, 2, "1f1b", 2}, {2, {}, 4, "1f1b", 3},        {4, {}, 1, "1f1b", 3},        {8, {}, 1, "1f1b", 3},
      {2, {.tp = 2}, 2},     {4, {.tp = 2}, 2, "1f1b", 1}, {4, {.tp = 2}, 1, "1f1b", 2}, {8, {.tp = 2}, 2, "1f1b", 3}};
  for (const MatrixEntry& entry : layouts) {
    std::mutex mutex;
    double largest = 0;
    std::string worst;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            Mesh<dp, tp> mesh(world, entry.degrees);
            std::string mine;
            const double difference = field_difference<Layout>(mesh, entry, config, reference, mine);
            std::lock_guard lock(mutex);
            if (difference > largest) worst = mine;
            largest = std::max(largest, difference);
          }) == 0);
    INFO("world " << entry.world << ", tp(" << entry.degrees.tp << "), ZeRO " << entry.zero << ", micro-batches "
                  << entry.micro_batches << ", worst " << worst);
    CHECK(largest <= 1e-12);
  }
}

TEST_CASE("reproducible runs of a Module with children have the bits of one rank") {
  using Layout = FullyShardedDataParallel<Deep>;
  const auto train = [](auto& model, std::size_t rank, std::size_t ranks) {
    optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
    std::vector<double> all;
    for (std::uint64_t step = 0; step < 2; ++step) {
      all.push_back(model.train_step(Deep::make_batch({}, step, rank, ranks, 4 / ranks)));
      all.push_back(optimizer.step().gradient_norm);
    }
    for (const std::string& name : model.parameter_names())
      for (const double value : model.parameter(name)) all.push_back(value);
    return all;
  };
  ModelOptions options{.numerics = {.reproducible = true}};
  DefaultDevice device;
  SingleDevice<Deep> one(device, {}, options);
  const std::vector<double> expected = train(one, 0, 1);
  for (const int stage : {1, 2, 3})
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            ModelOptions own = options;
            own.shard.stage = stage;
            Layout model(mesh, {}, own);
            if (train(model, std::size_t(world.rank()), 2) != expected) throw Error("other bits than one rank's");
          }) == 0);
}

TEST_CASE("a step holds a few children, not the Module") {
  const DeepConfig few{.width = 64, .blocks = 4}, many{.width = 64, .blocks = 16};
  const std::size_t child = 8 * (4 * 64 * 64 + 5 * 64);  // bytes of a block's values, and of its gradients
  for (const int stage : {2, 3}) {
    const std::size_t of_few = peak<FullyShardedDataParallel<Deep>>(few, stage),
                      of_many = peak<FullyShardedDataParallel<Deep>>(many, stage);
    INFO("stage " << stage << ": " << of_few << " bytes with 4 blocks, " << of_many << " with 16; a block has " << child);
    CHECK(of_many < of_few + child);  // activations grow, and nothing else
    CHECK(of_many < (stage == 3 ? 6 : 4) * child);
  }
}

TEST_CASE("frozen layers in front of a Module's trained ones have no backward") {
  const auto gradients = [](std::vector<std::string> freeze, std::size_t count) {
    DefaultDevice device;
    SingleDevice<Deep> model(device, {}, ModelOptions{.freeze = std::move(freeze)});
    backwards = 0;
    model.train_step(Deep::make_batch({}, 0, 0, 1, 2));
    CHECK(backwards == count);
    std::map<std::string, std::vector<double>> all;
    for (const std::string& name : model.parameter_names()) all[name] = model.gradient(name);
    return all;
  };
  const auto all = gradients({}, 2), some = gradients({"encoder.*"}, 0);
  for (const auto& entry : all) {
    const std::string& name = entry.first;
    const bool frozen = name.find("encoder.") == 0;
    CHECK_MESSAGE(some.at(name) == (frozen ? std::vector<double>(entry.second.size()) : entry.second), name);
  }
}
