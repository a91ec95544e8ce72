// SPDX-License-Identifier: Apache-2.0
// A NaN or an infinity in one element of one gradient of one rank is traced to that rank, that parameter and that micro-batch: in
// every layout, for all later sums over ranks, in reproducible runs and in users' own loops. The step is skipped.

#include <weft/parallel/nonfinite_trace.hpp>

#include <atomic>
#include <limits>
#include <optional>
#include <set>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"
#include "support/figure.hpp"

using namespace weft_test;

namespace {

/// The gradient to spoil on this rank (a thread): that of this gain, in its backward of this micro-batch.
struct Spoil {
  std::size_t gain, micro, element;
  double value;
};
thread_local std::optional<Spoil> spoil;
thread_local std::vector<std::size_t> backwards;  // of each gain in this step

/// y = x * gain, with a gradient that can be spoilt: the gradient of x is not.
struct SpoiltGain : Primitive<SpoiltGain> {
  Parameter<> gain;
  std::size_t number;
  SpoiltGain(const auto& context, std::size_t width, std::size_t which)
      : gain(context, "gain", {width}, normal(1)), number(which) {}
  auto forward(const auto&, const auto& x) const { return Result{times_row(x, gain.for_operand(x)), x}; }
  auto backward_input(const auto&, auto x, const auto& g) {
    auto dx = times_row(g, gain.for_operand(g));
    return InputGradient{std::move(dx), std::pair(std::move(x), g)};
  }
  template <class Deferred>
  void backward_weight(const auto& context, Deferred deferred) {
    auto sum = sum_rows(times(deferred.second, deferred.first));
    if (backwards.size() <= number) backwards.resize(number + 1);
    if (const std::size_t micro = backwards[number]++; spoil && spoil->gain == number && spoil->micro == micro)
      sum.data()[spoil->element % sum.size()] = spoil->value;
    gain.accumulate(context, std::move(sum));
  }
};

/// The MLP of the parity matrix with a gain in each unit.
struct GainMlp {
  using scalar = double;
  using Config = MlpConfig;
  using Batch = Mlp::Batch;

  struct First : Module<First> {
    TwoLayers layers;
    SpoiltGain gain;
    First(TwoLayers l, SpoiltGain g) : layers(std::move(l)), gain(std::move(g)) {}
    auto forward(const auto& batch) const { return to_hidden(gain(layers(batch[input_field]))); }
  };
  struct Middle : Module<Middle> {
    TwoLayers layers;
    SpoiltGain gain;
    Middle(TwoLayers l, SpoiltGain g) : layers(std::move(l)), gain(std::move(g)) {}
    auto forward(const auto& x) const { return x + to_layout_of(x, gain(to<Invariant<tp>>(layers(x)))); }
  };
  struct Last : Module<Last> {
    TwoLayers layers;
    SpoiltGain gain;
    Last(TwoLayers l, SpoiltGain g) : layers(std::move(l)), gain(std::move(g)) {}
    auto forward(const auto& x, const auto& batch) const {
      return sum_losses(HalfSquares()(gain(to<Invariant<tp>>(layers(x))) - to<Invariant<tp>>(batch[wanted_field])));
    }
  };

  static auto stack(const auto& context, const Config& config) {
    return Stack(
        [=] {
          return First(TwoLayers(context / "0", config.in, 2 * config.width, config.width),
                       SpoiltGain(context / "0", config.width, 0));
        },
        repeated(config.layers,
                 [=](std::size_t i) {
                   const auto here = context / std::to_string(i + 1);
                   return Middle(TwoLayers(here, config.width, 2 * config.width, config.width),
                                 SpoiltGain(here, config.width, i + 1));
                 }),
        [=] {
          const auto here = context / std::to_string(config.layers + 1);
          return Last(TwoLayers(here, config.width, 2 * config.width, config.out),
                      SpoiltGain(here, config.out, config.layers + 1));
        });
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    return Mlp::make_batch(config, step, rank, ranks, micro_batches);
  }
};

unsigned long long spoilt = 0, wrong = 0;

/// Spoils a gradient of a random gain of each rank in turn, with a step that is not spoilt after each.
template <class Composition, class Axes = Mesh<dp, tp, pp>>
void check(const MatrixEntry& entry, bool reproducible, const auto& gradients_of) {
  INFO("world " << entry.world << ", tp(" << entry.degrees.tp << ") pp(" << entry.degrees.pp << "), " << entry.schedule
                << ", ZeRO " << entry.zero << ", micro-batches " << entry.micro_batches << ", reproducible " << reproducible);
  std::mutex mutex;
  const int code = runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
    Axes mesh(world, entry.degrees);
    ModelOptions options;
    options.shard.stage = entry.zero;
    options.pipeline.schedule = schedule::choose(entry.schedule);
    options.numerics.reproducible = reproducible;
    options.numerics.trace_nonfinite = true;
    Composition model(mesh, MlpConfig{}, options);
    optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
    std::vector<std::size_t> mine;  // the gains that this rank holds
    model.for_each_state([&](const ParameterState& state) {
      if (state.name().ends_with("gain")) mine.push_back(std::size_t(std::stoul(state.name())));
    });
    std::uint64_t step = 0;
    const auto trained = [&] {
      backwards.clear();
      gradients_of(model, GainMlp::make_batch({}, step++, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})),
                                              entry.micro_batches));
      return optimizer.step().skipped;
    };
    bool right = !trained() && find_nonfinite(model).empty();
    for (int rank = 0; rank < world.size(); ++rank) {
      const std::uint64_t random = key_of(7, std::uint64_t(rank), step);
      NonfiniteGradient expected{.rank = rank, .parameter = "", .micro_batch = 0};
      std::uint64_t sent[] = {0, 0};
      if (world.rank() == rank) {
        spoil = Spoil{mine[random % mine.size()], (random >> 8) % entry.micro_batches, std::size_t(random >> 16),
                      random & 128 ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::infinity()};
        sent[0] = spoil->gain;
        sent[1] = spoil->micro;
      }
      world.communicator().broadcast(std::span(sent), rank);
      expected.parameter = std::to_string(sent[0]) + ".gain";
      expected.micro_batch = std::size_t(sent[1]);
      const bool skipped = trained();
      spoil.reset();
      right = right && skipped && find_nonfinite(model) == std::vector{expected};
      right = right && !trained() && find_nonfinite(model).empty();
    }
    std::lock_guard lock(mutex);
    if (world.rank() == 0) spoilt += std::uint64_t(world.size());
    wrong += !right;
    CHECK(right);
  });
  CHECK(code == 0);
}

const auto train_step = [](auto& model, const auto& batch) { model.train_step(batch); };

}  // namespace

TEST_CASE("a gradient that is not finite is traced in every layout") {
  for (const MatrixEntry& entry : field_layouts) check<TensorLayout<GainMlp>>(entry, false, train_step);
  for (const MatrixEntry& entry : field_layouts) check<TensorLayout<GainMlp>>(entry, true, train_step);
  weft_test::figure(12, spoilt, "gradients with a NaN or an infinity in one element of one rank to be traced", wrong,
                    "named another rank, parameter or micro-batch");
}

TEST_CASE("a gradient that is not finite is traced in a custom training loop") {
  for (const int stage : {0, 2, 3})
    check<FullyShardedDataParallel<TensorParallel<GainMlp>>, Mesh<dp, tp>>({4, {.tp = 2}, 2, "1f1b", stage}, false,
                                                                           [](auto& model, const auto& batch) {
                                                                             for (std::size_t i = 0; i < batch.micro_batches; ++i)
                                                                               model.loss(batch, MicroBatchIndex{i}).backward();
                                                                           });
}

TEST_CASE("a NaN of one rank's forward names every parameter of that rank and of no other") {
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [](World& world) {
          Mesh<dp> mesh(world);
          DataParallel<GainMlp> model(mesh, MlpConfig{}, {.numerics = {.compare_every = 0, .trace_nonfinite = true}});
          optim::Sgd optimizer(model);
          auto batch = GainMlp::make_batch({}, 0, std::size_t(world.rank()), 2, 1);
          if (world.rank() == 1)
            for (auto& value : batch[input_field].resize(batch.samples, {MlpConfig{}.in}))
              value = std::numeric_limits<float>::quiet_NaN();
          model.train_step(batch);
          CHECK(optimizer.step().skipped);
          std::set<std::string> names;
          for (const NonfiniteGradient& found : find_nonfinite(model)) {
            CHECK(found.rank == 1);
            names.insert(found.parameter);
          }
          CHECK(names == std::set<std::string>(model.parameter_names().begin(), model.parameter_names().end()));
        }) == 0);
}

TEST_CASE("find_nonfinite refuses a model that does not trace its gradients") {
  DefaultDevice device;
  SingleDevice<GainMlp> model(device, MlpConfig{});
  model.train_step(GainMlp::make_batch({}, 0, 0, 1, 1));
  CHECK_THROWS_WITH_AS(
      find_nonfinite(model),
      "weft: find_nonfinite: the model does not look at its gradients; give it ModelOptions::numerics.trace_nonfinite",
      UsageError);
}
