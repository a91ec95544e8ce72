// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/recheck.hpp
// covers: weft/pipeline/gradient_bits.hpp
// covers: weft/pipeline/peer_samples.hpp
// covers: weft/engine/forwarding_accumulator.hpp
// covers: weft/tensor/hash_elements.hpp
// Micro-batches that another data rank computes again: a flipped bit in one product of one rank is found and the rank is named; a
// training has the same bits with and without.

#include <weft/engine/forwarding_accumulator.hpp>
#include <weft/nn/batch_norm.hpp>
#include <weft/pipeline/gradient_bits.hpp>
#include <weft/pipeline/peer_samples.hpp>
#include <weft/pipeline/recheck.hpp>
#include <weft/tensor/hash_elements.hpp>

#include <bit>
#include <mutex>
#include <optional>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"
#include "support/figure.hpp"

using namespace weft_test;

namespace {

/// A bit that one product of this rank (a thread) gets wrong: of this layer, its y (0), dx (1) or dw (2), in these calls.
struct Flip {
  std::size_t layer, product, first_call, last_call, element;
  int bit;
};
thread_local std::optional<Flip> flip;
thread_local std::map<std::pair<std::size_t, std::size_t>, std::size_t> made;  // of each product in this step

template <class X>
void may_flip(const X& x, std::size_t layer, std::size_t product) {
  const std::size_t call = made[{layer, product}]++;
  if (!flip || flip->layer != layer || flip->product != product || call < flip->first_call || call > flip->last_call) return;
  float& value = x.data()[flip->element % x.size()];
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1u << flip->bit));
}

/// y = x Wᵀ in a processor that may err.
struct Product : Primitive<Product> {
  Parameter<> weight;
  std::size_t number;
  Product(const auto& context, std::size_t in, std::size_t out, std::size_t which)
      : weight(context, "weight", {out, in}, normal(0.4)), number(which) {}
  auto forward(const auto&, const auto& x) const {
    auto y = contract<0, 0>(x, weight.for_operand(x));
    may_flip(y, number, 0);
    return Result{std::move(y), x};
  }
  auto backward_input(const auto&, auto x, const auto& g) {
    auto dx = contract<0, 1>(g, weight.for_operand(g));
    may_flip(dx, number, 1);
    return InputGradient{std::move(dx), std::pair(std::move(x), g)};
  }
  template <class Deferred>
  void backward_weight(const auto& context, Deferred deferred) {
    auto dw = contract<1, 1>(deferred.second, deferred.first);
    may_flip(dw, number, 2);
    weight.accumulate(context, std::move(dw));
  }
};

struct FlippableConfig : MlpConfig {
  bool normalises = false;  // BatchNorm, whose statistics go over dp: an error of one rank then reaches all
};

/// The MLP of the parity matrix in float, with such a product in each unit and dropout.
struct Flippable {
  using scalar = float;
  using Config = FlippableConfig;
  using Batch = Mlp::Batch;

  struct First : Module<First> {
    Product product;
    First(const auto& context, const Config& config) : product(context, config.in, config.width, 0) {}
    auto forward(const auto& batch) const { return to_hidden(to<Invariant<tp>>(product(batch[input_field]))); }
  };
  struct Middle : Module<Middle> {
    TwoLayers layers;
    Product product;
    BatchNorm<> norm;
    Dropout dropout;
    bool normalises;
    Middle(const auto& context, const Config& config, std::size_t i)
        : layers(context, config.width, 2 * config.width, config.width),
          product(context, config.width, config.width, i + 1),
          norm(context / "norm", config.width),
          dropout(context / "dropout", 0.2),
          normalises(config.normalises) {}
    auto forward(const auto& x) const {
      auto y = product(to<Invariant<tp>>(layers(x)));
      if (normalises) y = norm(y);
      return x + to_layout_of(x, dropout(y));
    }
  };
  struct Last : Module<Last> {
    Product product;
    Last(const auto& context, const Config& config) : product(context, config.width, config.out, config.layers + 1) {}
    auto forward(const auto& x, const auto& batch) const {
      return sum_losses(HalfSquares()(product(to<Invariant<tp>>(x)) - to<Invariant<tp>>(batch[wanted_field])));
    }
  };
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return First(context / "first", config); },
                 repeated(config.layers, [=](std::size_t i) { return Middle(context / std::to_string(i), config, i); }),
                 [=] { return Last(context / "last", config); });
  }
  static Batch make_batch(const Config& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                          std::size_t micro_batches) {
    return Mlp::make_batch(config, step, rank, ranks, micro_batches);
  }
};

/// Two ranks' and more ranks' data parallelism, alone and with other axes, stages of ZeRO and schedules.
const std::vector<MatrixEntry> layouts = {
    {2, {}, 1, "1f1b", 0},         {2, {}, 2, "1f1b", 3},
    {4, {}, 2, "1f1b", 1},         {4, {}, 2, "1f1b", 2},
    {4, {}, 1, "1f1b", 3},         {4, {.tp = 2}, 2, "1f1b", 2},
    {4, {.pp = 2}, 4, "1f1b", 3},  {4, {.pp = 2}, 4, "interleaved", 1},
    {4, {.pp = 2}, 4, "zbv", 0},   {8, {.tp = 2}, 2, "1f1b", 0},
    {8, {.pp = 2}, 2, "zb-h1", 2}, {8, {.tp = 2, .pp = 2}, 4, "interleaved", 3},
};

std::string name_of(const MatrixEntry& entry) {
  return "world " + std::to_string(entry.world) + ", tp(" + std::to_string(entry.degrees.tp) + ") pp(" +
         std::to_string(entry.degrees.pp) + "), " + entry.schedule + ", ZeRO " + std::to_string(entry.zero);
}

ModelOptions options_of(const MatrixEntry& entry, std::uint64_t recheck_every) {
  ModelOptions options;
  options.shard.stage = entry.zero;
  options.pipeline.schedule = schedule::choose(entry.schedule);
  options.numerics.recheck_every = recheck_every;
  return options;
}

template <class Model>
auto batch_of(const typename Model::Config& config, const auto& mesh, const MatrixEntry& entry, std::uint64_t step) {
  return Model::make_batch(config, step, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches);
}

/// All numbers of a short training: losses, norms, the parameters and the values that layers keep.
template <class Composition>
std::vector<std::vector<double>> training(const MatrixEntry& entry, const typename Composition::Config& config, bool reproducible,
                                          std::uint64_t recheck_every) {
  using Model = typename Composition::model_type;
  std::vector<std::vector<double>> numbers(entry.world);
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, entry.degrees);
          ModelOptions options = options_of(entry, recheck_every);
          options.numerics.reproducible = reproducible;
          Composition model(mesh, config, options);
          optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
          auto& mine = numbers[std::size_t(world.rank())];
          for (std::uint64_t step = 0; step < 4; ++step) {
            const auto batch = batch_of<Model>(config, mesh, entry, step);
            mine.push_back(model.train_step(batch));
            mine.push_back(optimizer.step().gradient_norm);
            mine.push_back(model.evaluate(batch));
          }
          for (const std::string& name : model.parameter_names())
            for (const double value : model.parameter(name)) mine.push_back(value);
          for (const auto& buffer : model.buffers()) mine.insert(mine.end(), buffer->value.begin(), buffer->value.end());
        }) == 0);
  return numbers;
}

/// GPT with tied embeddings and dropout.
struct TiedGpt : models::Gpt {
  static TokenBatch make_batch(const models::GptConfig& config, std::uint64_t step, std::size_t rank, std::size_t ranks,
                               std::size_t micro_batches) {
    TokenBatch batch{.sequences = 8 / ranks, .length = 6, .micro_batches = micro_batches, .first_sequence = 8 / ranks * rank};
    batch.step = step;
    for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
      batch.tokens.push_back(std::int32_t(key_of(step, batch.first_sequence * batch.length + i) % config.vocabulary));
      batch.targets.push_back(std::int32_t(key_of(step, batch.first_sequence * batch.length + i, 1) % config.vocabulary));
    }
    return batch;
  }
};

unsigned long long flips = 0, harmless = 0, wrong = 0;

/// Flips a bit of a product of a random rank, in the step or in the second computation, and trains.
void check_flips(const MatrixEntry& entry, long trials) {
  const FlippableConfig config;
  std::mutex mutex;
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, entry.degrees);
          TensorLayout<Flippable> model(mesh, config, options_of(entry, 1));
          std::vector<std::size_t> layers;  // of this rank
          model.for_each_state([&](const ParameterState& state) {
            const std::string name(state.name());
            if (name == "first.weight") layers.push_back(0);
            else if (name == "last.weight") layers.push_back(config.layers + 1);
            else if (name.ends_with(".weight") && name.find("norm") == name.npos)
              layers.push_back(std::size_t(std::stoul(name)) + 1);
          });
          const auto batch = batch_of<Flippable>(config, mesh, entry, 0);
          const auto gradients = [&] {
            std::vector<double> all;
            for (const std::string& name : model.parameter_names())
              for (const double value : model.gradient(name)) all.push_back(value);
            return all;
          };
          made.clear();
          const double loss = model.train_step(batch);
          const std::vector<double> right = gradients();
          model.discard_gradients();
          const std::size_t group = mesh.size(tp{}) * mesh.size(pp{});  // ranks that compute a micro-batch together
          for (long trial = 0; trial < trials; ++trial) {
            const std::uint64_t random = key_of(3, std::uint64_t(trial), entry.world, group * 10 + std::size_t(entry.zero));
            const int victim = int(random % entry.world);
            if (world.rank() == victim)
              flip = Flip{layers[(random >> 8) % layers.size()],
                          (random >> 16) % 3,
                          (random >> 20) % 2,
                          (random >> 20) % 2,
                          std::size_t(random >> 24),
                          int((random >> 40) % 32)};
            made.clear();
            int data = mesh.rank(dp{});
            world.communicator().broadcast(std::span(&data, 1), victim);
            std::vector<int> named;
            std::string message;
            bool decided = false, thrown = false, same = false;
            try {
              same = model.train_step(batch) == loss && gradients() == right;
              model.discard_gradients();
            } catch (const CorruptionError& error) {
              thrown = true, decided = error.decided(), named = error.ranks(), message = error.what();
              CHECK(error.exit_code() == 4);
            }
            flip.reset();
            // The ranks named have the victim's data coordinate, and it is among them.
            std::vector<std::int32_t> coordinates(entry.world);
            const std::int32_t mine = mesh.rank(dp{});
            world.communicator().all_gather(std::span<const std::int32_t>(&mine, 1), coordinates);
            bool right_rank = thrown && decided && std::find(named.begin(), named.end(), victim) != named.end();
            for (const int rank : named) right_rank = right_rank && coordinates[std::size_t(rank)] == data;
            right_rank = right_rank && named.size() == group;
            INFO("trial " << trial << ", rank " << victim << ", thrown " << thrown << ", decided " << decided << ": " << message);
            CHECK((thrown ? right_rank : same));
            const std::lock_guard lock(mutex);
            if (world.rank() == 0) {
              flips += thrown || !same;
              harmless += !thrown && same;
            }
            wrong += thrown ? !right_rank : !same;
          }
        }) == 0);
}

}  // namespace

TEST_CASE("a flipped bit in one product of one rank is found, and the rank is named") {
  const long trials = weft_test::rounds(weft_test::long_form() ? 120 : 4);
  for (const MatrixEntry& entry : layouts) {
    INFO(name_of(entry));
    check_flips(entry, trials);
  }
  std::printf("%llu flips changed no bit of a result\n", harmless);
  weft_test::figure(25, flips, "flipped bits that changed a result", wrong, "not found, or another rank was named");
}

TEST_CASE("a training has the same bits with micro-batches that are computed again") {
  for (const MatrixEntry& entry : layouts) {
    INFO(name_of(entry));
    for (const bool reproducible : {false, true}) {
      const FlippableConfig config{{}, true};
      CHECK(training<TensorLayout<Flippable>>(entry, config, reproducible, 2) ==
            training<TensorLayout<Flippable>>(entry, config, reproducible, 0));
      const models::GptConfig gpt{.vocabulary = 16, .layers = 4, .width = 8, .heads = 2, .sequence = 6, .dropout = 0.1};
      CHECK(training<TensorLayout<TiedGpt>>(entry, gpt, reproducible, 2) ==
            training<TensorLayout<TiedGpt>>(entry, gpt, reproducible, 0));
    }
  }
}

TEST_CASE("a processor that always errs") {
  for (const int ranks : {2, 3}) {
    CHECK(
        runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world);
          TensorLayout<Flippable> model(mesh, FlippableConfig{}, options_of({std::size_t(ranks), {}, 1}, 3));
          Flippable::Batch batch = share_of_samples<Flippable::Batch>(0, std::size_t(world.rank()), 2, 1);
          fill_field(batch, input_field, 1, {FlippableConfig().in});
          fill_field(batch, wanted_field, 2, {FlippableConfig().out});
          if (world.rank() == 1) flip = Flip{2, 1, 0, 1000, 3, 30};
          made.clear();
          std::string message;
          std::vector<int> named;
          try {
            model.train_step(batch);
          } catch (const CorruptionError& error) {
            message = error.what();
            named = error.ranks();
            CHECK(error.decided() == (ranks == 3));
          }
          if (ranks == 3) {
            CHECK(named == std::vector{1});
            CHECK(
                message ==
                "weft: recheck in step 0: rank 1 computed wrong bits of a micro-batch (first: first.weight), on which two other "
                "data ranks agree; the step is not applied: replace the processor of this rank, and continue from the last "
                "checkpoint");
          } else {
            CHECK(named == std::vector{0, 1});
            CHECK(message ==
                  "weft: recheck in step 0: ranks 0 and 1 computed different bits of one micro-batch (first: first.weight), and "
                  "both repeat their own; the step is not applied: at least one of them is wrong, test their processors, which "
                  "must be of one model, and continue from the last checkpoint; a third data rank would decide");
          }
          // The next two steps are not rechecked.
          batch.step = 1;
          CHECK_NOTHROW(model.train_step(batch));
          flip.reset();
          batch.step = 3;
          CHECK_NOTHROW(model.train_step(batch));
        }) == 0);
  }
}

TEST_CASE("layouts in which no other rank can compute a micro-batch again") {
  CHECK(
      runtime::run(runtime::RunOptions{.ranks = 2}, [](World& world) {
        Mesh<dp, tp, pp> mesh(world, {.tp = 2});
        CHECK_THROWS_WITH_AS(
            TensorLayout<Flippable>(mesh, FlippableConfig{}, {.numerics = {.recheck_every = 1}}),
            "weft: numerics.recheck_every: another data rank computes a micro-batch again, and dp is 1; use dp of 2 (3 to decide "
            "which rank is wrong), or leave the option out",
            LayoutError);
      }) == 0);
}
