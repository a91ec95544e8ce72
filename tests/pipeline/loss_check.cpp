// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/loss_axes.hpp weft/pipeline/loss_count.hpp
// covers: weft/pipeline/loss_check.hpp weft/pipeline/some_samples.hpp weft/context/loss_weight.hpp
// Losses that are divided by a count, in a Module's loss and in a user's own loop, are refused before the first step, in every
// layout, because weft divides too. Sums are accepted, and the check has no effect on later results.

#include <weft/context/loss_weight.hpp>
#include <weft/pipeline/loss_axes.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/loss_count.hpp>
#include <weft/pipeline/some_samples.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

namespace {

enum class Kind { sum, mean, mean_and_sum, compared };

struct CheckedConfig {
  Kind kind = Kind::sum;
  std::size_t blocks = 2;
};
/// `says`: the layer declares the loss as a sum, so nothing is checked.
template <class T, bool says>
struct Checked : Module<Checked<T, says>> {
  static constexpr bool loss_is_a_sum = says;
  using scalar = T;
  using Config = CheckedConfig;
  using Batch = Mlp::Batch;

  Kind kind;
  Linear<> encoder;
  std::vector<TwoLayers> blocks;
  Dropout dropout;
  Linear<> decoder;
  Checked(const auto& context, const Config& config)
      : kind(config.kind),
        encoder(context / "encoder", 6, 8, {.standard_deviation = 0.5}),
        dropout(context / "dropout", 0.25),
        decoder(context / "decoder", 8, 3, {.standard_deviation = 0.5}) {
    for (std::size_t i = 0; i < config.blocks; ++i) blocks.emplace_back(context / "blocks" / std::to_string(i), 8, 16, 8);
  }
  auto forward(const auto& x) const { return decoder(encoder(to<Invariant<tp>>(x))); }
  auto loss(const auto& batch) const {
    auto x = encoder(to<Invariant<tp>>(batch[input_field]));
    for (const TwoLayers& block : blocks) x = dropout(x + to_layout_of(x, block(x)));
    const auto squares = HalfSquares()(decoder(x) - to<Invariant<tp>>(batch[wanted_field]));
    const double count = double(batch.samples());
    const auto mean = sum_losses(squares * (1 / count));
    if (kind == Kind::mean) return mean;
    if (kind == Kind::mean_and_sum) return mean + sum_losses(squares) * 0.1;
    if (kind == Kind::compared) return sum_losses(squares * count);
    return sum_losses(squares);
  }
  static Batch make_batch(std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
    auto batch = share_of_samples<Batch>(0, rank, ranks, micro_batches);
    batch.step = {};
    fill_field(batch, input_field, 1, {6});
    fill_field(batch, wanted_field, 2, {3});
    return batch;
  }
};

/// The result of a training of two steps: its losses and parameters, or the first error.
template <class Model, class Mesh>
std::string trained(Mesh& mesh, const MatrixEntry& entry, Kind kind, bool own_loop) {
  using Layout = FullyShardedDataParallel<TensorParallel<Model>>;
  ModelOptions options;
  options.shard.stage = entry.zero;
  Layout model(mesh, {.kind = kind}, options);
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  std::string text;
  try {
    for (int step = 0; step < 2; ++step) {
      const auto batch =
          Model::make_batch(std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), own_loop ? 1 : entry.micro_batches);
      if (own_loop) {
        auto loss = model.loss(batch);
        text += std::to_string(loss.value()) + " ";
        loss.backward();
      } else {
        text += std::to_string(model.train_step(batch)) + " ";
      }
      optimizer.step();
    }
    for (const std::string& name : model.parameter_names())
      for (const double value : model.parameter(name)) text += std::to_string(value) + " ";
  } catch (const UsageError& error) {
    text = error.what();
  }
  return text;
}
template <class Model>
std::string trained(const MatrixEntry& entry, Kind kind, bool own_loop = false) {
  std::string text;
  std::mutex mutex;
  CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
          Mesh<dp, tp> mesh(world, entry.degrees);
          const std::string mine = trained<Model>(mesh, entry, kind, own_loop);
          std::lock_guard lock(mutex);
          if (world.rank() == 0) text = mine;
        }) == 0);
  return text;
}

const std::vector<MatrixEntry> layouts = {{1, {}, 1}, {1, {}, 2}, {2, {}, 2, "", 0}, {2, {}, 1, "", 3}, {2, {.tp = 2}, 1}};

}  // namespace

TEST_CASE("a Module's loss that is divided by a count is refused before its first step") {
  for (const MatrixEntry& entry : layouts)
    for (const bool own_loop : {false, true})
      for (const Kind kind : {Kind::mean, Kind::mean_and_sum, Kind::compared}) {
        const std::string said = trained<Checked<double, false>>(entry, kind, own_loop);
        INFO("world " << entry.world << ", ZeRO " << entry.zero << ", kind " << int(kind) << ", own loop " << own_loop);
        CHECK_MESSAGE(said.starts_with("weft: the loss of this model is not a sum over samples: that of "), said);
        CHECK(trained<Checked<double, true>>(entry, kind, own_loop).find("weft") == std::string::npos);
      }
}

TEST_CASE("the check of a loss that is a sum leaves no trace: the same bits as without it") {
  for (const MatrixEntry& entry : layouts)
    for (const bool own_loop : {false, true}) {
      INFO("world " << entry.world << ", ZeRO " << entry.zero << ", own loop " << own_loop);
      const std::string with = trained<Checked<double, false>>(entry, Kind::sum, own_loop);
      CHECK_MESSAGE(with.find("weft") == std::string::npos, with);
      CHECK(with == trained<Checked<double, true>>(entry, Kind::sum, own_loop));
    }
}

TEST_CASE("sums in 16 bits are let through, and means are not") {
  CHECK(trained<Checked<bfloat16, false>>({1, {}, 1}, Kind::sum).find("weft") == std::string::npos);
  CHECK(trained<Checked<bfloat16, false>>({1, {}, 1}, Kind::mean).starts_with("weft: the loss of this model is not a sum"));
}

TEST_CASE("a function given to model.loss that divides by a count is refused at its first call") {
  using Model = Checked<double, true>;
  const auto mean = [](const auto& x, const auto& y) {
    return sum_losses(HalfSquares()(x - to<Invariant<tp>>(y)) * (1 / double(x.shape()[0])));
  };
  const auto sum = [](const auto& x, const auto& y) { return sum_losses(HalfSquares()(x - to<Invariant<tp>>(y))); };
  DefaultDevice device;
  SingleDevice<Model> model(device, {});
  const auto batch = Model::make_batch(0, 1, 1);
  const auto fields = model.inputs(batch);
  auto call = model.forward(batch);
  const double expected = model.loss(batch, sum, call.output(), fields[wanted_field]).value();
  CHECK(expected > 0);
  CHECK(model.loss(batch, sum, call.output(), fields[wanted_field]).value() == expected);
  std::string said;
  try {
    model.loss(batch, mean, call.output(), fields[wanted_field]);
  } catch (const UsageError& error) {
    said = error.what();
  }
  CHECK_MESSAGE(said.starts_with("weft: the loss of this function given to model.loss is not a sum over samples: that of 1 "),
                said);
}

namespace {

/// mse / rows, which the type of a loss does not refuse if it is hidden in the samples' losses.
struct Hidden : Module<Hidden> {
  using scalar = double;
  using Config = CheckedConfig;
  using Batch = Mlp::Batch;
  Parameter<> w;
  Kind kind;
  LossWeight half;
  Hidden(const auto& context, const Config& config)
      : w(context, "w", {3, 6}, zeros), kind(config.kind), half(context, 0.25 * double(config.blocks)) {}
  auto loss(const auto& batch) const {
    const auto squares = HalfSquares()(matmul(batch[input_field], w) - batch[wanted_field]);
    const double count = kind == Kind::mean ? double(batch.samples()) : 1;
    return half * sum_losses(squares * (1 / count)) + sum_losses(squares * (1 / count)) * 0.5;
  }
};

/// The same in the back of a model of several units.
struct HiddenBack : Module<HiddenBack> {
  Parameter<> w;
  Kind kind;
  HiddenBack(const auto& context, Kind of) : w(context, "w", {3, 6}, zeros), kind(of) {}
  auto forward(const auto& x, const auto& batch) const {
    const auto squares = HalfSquares()(matmul(x, w) - batch[wanted_field]);
    return sum_losses(squares * (kind == Kind::mean ? 1 / double(x.shape()[0]) : 1));
  }
};
struct HiddenStack {
  using scalar = double;
  using Config = CheckedConfig;
  using Batch = Mlp::Batch;
  struct Front : Module<Front> {
    Linear<> linear;
    explicit Front(const auto& context) : linear(context, 6, 6, {.standard_deviation = 0.5}) {}
    auto forward(const auto& batch) const { return linear(batch[input_field]); }
  };
  static auto stack(const auto& context, const Config& config) {
    return Stack([=] { return Front(context / "front"); }, [=] { return HiddenBack(context / "back", config.kind); });
  }
};

/// Steps on batches in which only the last `with_loss` of all samples have a loss, then one in which all have.
template <class Model>
std::string steps_with_zeros(World& world, Kind kind, std::size_t with_loss, int zero_steps, std::size_t micro_batches) {
  Mesh<dp> mesh(world);
  const std::size_t rank = std::size_t(mesh.rank(dp{})), ranks = std::size_t(mesh.size(dp{}));
  FullyShardedDataParallel<Model> model(mesh, {.kind = kind});
  optim::Sgd optimizer(model, {.learning_rate = 0});
  std::string text;
  try {
    for (int step = 0; step <= zero_steps; ++step) {
      auto batch = Checked<double, false>::make_batch(rank, ranks, micro_batches);
      auto wanted = batch[wanted_field].writable();
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (batch.first_sample + i / 3 + (step < zero_steps ? 0 : with_loss) < global_samples) wanted[i] = 0;
      model.train_step(batch);
      text += std::to_string(step) + " ";
      optimizer.step();
    }
  } catch (const UsageError& error) {
    text += error.what();
  }
  return text;
}

}  // namespace

TEST_CASE("the check goes on until samples have a loss, in all micro-batches and in later steps, on all ranks") {
  const auto refused = [](int ranks, std::size_t with_loss, int zero_steps, std::size_t micro_batches) {
    INFO("ranks " << ranks << ", with a loss " << with_loss << ", zero steps " << zero_steps << ", micro-batches "
                  << micro_batches);
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
            const std::string start = std::string(zero_steps == 0 ? "" : "0 1 2 ") + "weft: the loss of this model";
            const std::string whole = steps_with_zeros<Hidden>(world, Kind::mean, with_loss, zero_steps, micro_batches);
            CHECK_MESSAGE(whole.starts_with(start + " is not a sum over samples"), whole);
            const std::string back = steps_with_zeros<HiddenStack>(world, Kind::mean, with_loss, zero_steps, micro_batches);
            CHECK_MESSAGE(back.starts_with(start + "'s back is not a sum over samples"), back);
          }) == 0);
  };
  for (const int ranks : {1, 2, 4})
    for (const std::size_t with_loss : {1, 3, 8})
      for (const int zero_steps : {0, 3}) refused(ranks, with_loss, zero_steps, 1);
  for (const std::size_t with_loss : {1, 3}) {
    refused(1, with_loss, 0, 4);
    refused(2, with_loss, 3, 2);
  }
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          CHECK(steps_with_zeros<Hidden>(world, Kind::sum, 1, 2, 2) == "0 1 2 ");
          CHECK(steps_with_zeros<HiddenStack>(world, Kind::sum, 1, 2, 2) == "0 1 2 ");
        }) == 0);
}

TEST_CASE("samples of a micro-batch, repeated") {
  const TokenBatch tokens{.tokens = {1, 2, 3, 4, 5, 6},
                          .targets = {2, 3, -1, 5, 6, -1},
                          .sequences = 2,
                          .length = 3,
                          .micro_batches = 2,
                          .documents = {0, 0, 1, 0, 1, 1}};
  const TokenBatch second = detail::some_samples(tokens, 1, 0, 1, 1);
  second.check(7);
  CHECK(second.tokens == std::vector<std::int32_t>{4, 5, 6});
  CHECK(second.documents == std::vector<std::int32_t>{0, 1, 1});
  CHECK(second.first_sequence == 1);
  const TokenBatch twice = detail::some_samples(tokens, 0, 0, 1, 2);
  twice.check(7);
  CHECK(twice.tokens == std::vector<std::int32_t>{1, 2, 3, 1, 2, 3});
  CHECK(twice.targets == std::vector<std::int32_t>{2, 3, -1, 2, 3, -1});
  CHECK(twice.documents == std::vector<std::int32_t>{0, 0, 1, 0, 0, 1});
  CHECK(twice.sequences == 2);
  CHECK(twice.micro_batches == 1);
}
