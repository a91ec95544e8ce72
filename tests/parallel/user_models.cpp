// SPDX-License-Identifier: Apache-2.0
// Layers, losses and loops as users write them: ranks with rows that take different paths through a layer, a user-defined loss of
// tokens that tp shards, parameters without a gradient. Equal to one rank in every layout; impossible ones are refused.

#include "support/matrix.hpp"

using namespace weft_test;

namespace {

/// Tokens of the first half of a sequence are scaled by one gain, others by another: under sequence parallelism a rank uses only
/// one of them.
struct Halves {
  Parameter<> early, late;
  Halves(const auto& context, std::size_t width) : early(context, "early", {width}, ones), late(context, "late", {width}, ones) {}

  // x for early (or late) tokens, otherwise 0.
  template <class Context, class X>
  static X part(const Context& context, const X& x, bool is_early) {
    const auto positions = copy_to_host(positions_of(context, x));
    X y(x.device(), x.shape());
    for (std::size_t i = 0; i < x.size(); ++i)
      y.data()[i] =
          (std::size_t(positions[i / x.columns()]) < batch_length / 2) == is_early ? x.data()[i] : typename X::value_type(0);
    return y;
  }
  template <class Context, class X>
  static bool some(const Context& context, const X& x, bool is_early) {
    for (const auto position : copy_to_host(positions_of(context, x)))
      if ((std::size_t(position) < batch_length / 2) == is_early) return true;
    return false;
  }
  auto forward(const auto& context, const auto& x) const {
    return Result{
        add(times_row(part(context, x, true), early.for_operand(x)), times_row(part(context, x, false), late.for_operand(x))), x};
  }
  auto backward(const auto& context, auto x, const auto& g) {
    if (some(context, x, true)) early.accumulate(context, sum_rows(times(part(context, g, true), x)));
    if (some(context, x, false)) late.accumulate(context, sum_rows(times(part(context, g, false), x)));
    return add(times_row(part(context, g, true), early.for_operand(g)), times_row(part(context, g, false), late.for_operand(g)));
  }
};

/// Half the squared distance of the output from the target's one-hot vector, by token.
struct SquareHead {
  LayerNorm norm;
  Linear<> project;
  double off = 0;
  bool mean = false;

  auto forward(const auto& context, const auto& x, const auto& targets) const {
    auto normed = norm.forward(context, x);
    auto z = project.forward(context, normed.output);
    using Z = decltype(z.output);
    const auto here = there(context, z.output, targets);
    Z difference(x.device(), z.output.shape());
    replace_losses<Z> losses(x.device(), {x.rows()});
    for (std::size_t row = 0; row < x.rows(); ++row) {
      losses.data()[row] = off * double(context.rank(tp{}));
      for (std::size_t i = 0; i < difference.columns(); ++i) {
        const std::size_t at = row * difference.columns() + i;
        difference.data()[at] = here.data()[row] < 0 ? 0 : z.output.data()[at] - (std::size_t(here.data()[row]) == i);
        losses.data()[row] += difference.data()[at] * difference.data()[at] / 2;
      }
    }
    for (std::size_t row = 0; mean && row < x.rows(); ++row) losses.data()[row] /= double(x.rows());
    return Result{sum_losses(context, losses, here), std::tuple{std::move(normed.saved), std::move(z.saved), difference}};
  }
  auto logits(const auto& context, const auto& x) const {
    return project.forward(context, norm.forward(context, x).output).output;
  }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    auto& [normed, z, difference] = saved;
    using Z = std::remove_reference_t<decltype(difference)>;
    gradient_t<Z> dz(g.device(), difference.shape());
    for (std::size_t i = 0; i < dz.size(); ++i) dz.data()[i] = difference.data()[i] * g.data()[0];
    auto first = weft::backward_input(project, context, std::move(z), dz);
    auto second = weft::backward_input(norm, context, std::move(normed), first.input_gradient);
    return InputGradient{std::move(second.input_gradient), std::pair{std::move(first.deferred), std::move(second.deferred)}};
  }
  void backward_weight(const auto& context, auto deferred) {
    weft::backward_weight(project, context, std::move(deferred.first));
    weft::backward_weight(norm, context, std::move(deferred.second));
  }

  template <class Z>
  using replace_losses = Z;  // [tokens], placed as the rows are
  // The targets of the rows that are here.
  template <class Z>
  static auto there(const auto& context, const Z&, const auto& targets) {
    if constexpr (shard_dim<placement_t<Z, tp>> == 0) return to<Shard<tp, 0>>(context, targets);
    else return targets;
  }
};

struct UserConfig {
  std::size_t layers = 8, width = 16;
  double off = 0;  // added to each token's loss, times the rank in tp
  bool mean = false;
};

struct Block {
  Sequential<Halves, Residual<Sequential<LayerNorm, Linear<Column>, Gelu, Linear<Row>>>> layers;
  Parameter<> unused;  // read by no forward
  auto forward(const auto& context, const auto& x) const { return weft::forward(layers, context, x); }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    return weft::backward_input(layers, context, std::move(saved), g);
  }
  void backward_weight(const auto& context, auto deferred) { weft::backward_weight(layers, context, std::move(deferred)); }
};

struct User {
  using Config = UserConfig;
  using scalar = double;
  using Front = Embedding;
  using Block = ::Block;
  using Back = SquareHead;
  static std::size_t blocks(const Config& config) { return config.layers; }
  static std::size_t vocabulary(const Config&) { return batch_vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", batch_vocabulary, config.width, 0.3);
  }
  static Block make_block(const auto& context, const Config& config, std::size_t index) {
    const auto here = context / "block" / std::to_string(index);
    const std::size_t width = config.width;
    return {Sequential(Halves(here / "halves", width),
                       Residual(Sequential(LayerNorm(here / "norm", width),
                                           Linear<Column>(here / "up", width, 2 * width, {.standard_deviation = 0.3}), Gelu{},
                                           Linear<Row>(here / "down", 2 * width, width, {.standard_deviation = 0.3})))),
            Parameter<>(here, "unused", {width}, ones)};
  }
  static Back make_back(const auto& context, const Config& config, Front*) {
    return {LayerNorm(context / "norm", config.width),
            Linear<>(context / "head", config.width, batch_vocabulary, {.standard_deviation = 0.3}), config.off, config.mean};
  }
};

using Ring4 = FullyShardedDataParallel<ContextParallel<TensorParallel<Staged<User>>, Ring>>;
using Sequence4 = FullyShardedDataParallel<ContextParallel<SequenceParallel<Staged<User>>, Ring>>;

const std::vector<MatrixEntry> layouts = {
    {2, {}, 2, "1f1b", 0},
    {4, {}, 2, "1f1b", 2},
    {8, {}, 1, "1f1b", 3},
    {2, {.tp = 2}, 8},
    {4, {.tp = 4}, 2},
    {4, {.tp = 2}, 4, "1f1b", 3},
    {2, {.cp = 2}, 8},
    {4, {.cp = 4}, 4},
    {4, {.tp = 2, .cp = 2}, 8, "1f1b"},
    {4, {.pp = 4}, 8, "zb-h1"},
    {4, {.tp = 2, .pp = 2}, 4, "1f1b"},
    {8, {.tp = 2, .pp = 2}, 4, "interleaved", 1},
    {8, {.tp = 2, .pp = 2}, 4, "zbv", 3},
    {8, {.cp = 2, .pp = 2}, 4, "dualpipev", 2},
};
const auto all = [](const MatrixEntry&) { return true; };

}  // namespace

TEST_CASE("ranks that take different ways, a loss of one's own: every layout equals one rank") {
  CHECK(check_matrix<Ring4, DenseMesh>(layouts, {}, all) == layouts.size());
}
TEST_CASE("the same with rows, and the tokens of the loss, cut over tp") {
  CHECK(check_matrix<Sequence4, DenseMesh>(layouts, {}, [](const MatrixEntry& entry) { return entry.degrees.tp > 1; }) >= 5);
}

TEST_CASE("a parameter without a gradient is left alone, the same in every stage of ZeRO and layout") {
  std::vector<double> expected;
  for (const MatrixEntry& entry : {MatrixEntry{1, {}, 8},
                                   {2, {}, 4},
                                   {2, {}, 4, "1f1b", 1},
                                   {4, {}, 2, "1f1b", 2},
                                   {2, {}, 4, "1f1b", 3},
                                   {2, {.tp = 2}, 8},
                                   {2, {.cp = 2}, 8},
                                   {4, {.pp = 2}, 4, "zb-h1", 3}}) {
    INFO("world " << entry.world << ", stage " << entry.zero << ", tp " << entry.degrees.tp << ", pp " << entry.degrees.pp);
    std::mutex mutex;
    std::vector<double> losses;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            DenseMesh mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            options.pipeline.schedule = schedule::choose(entry.schedule);
            Sequence4 model(mesh, UserConfig{}, options);
            optim::AdamW optimizer(model, {.learning_rate = 1e-2, .weight_decay = 0.5});
            for (int step = 0; step < 3; ++step) {
              const double loss = model.train_step(
                  make_batch(step, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches));
              optimizer.step();
              if (world.rank() == 0) losses.push_back(loss);
            }
            std::size_t seen = 0, wrong = 0;
            model.for_each_state([&](ParameterState& state) {
              if (!state.name().ends_with("unused")) return;
              for (const auto& run : state.runs())
                for (std::size_t i = 0; i < run.length; ++i, ++seen)
                  wrong += static_cast<const double*>(state.value().get())[run.local + i] != 1.0;
            });
            std::lock_guard lock(mutex);
            CHECK(wrong == 0);
            CHECK((seen > 0 || entry.zero > 0));
          }) == 0);
    if (expected.empty()) expected = losses;
    REQUIRE(losses.size() == expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == doctest::Approx(expected[i]).epsilon(1e-9));
  }
}

TEST_CASE("two train_steps before a step are refused, where an optimizer would lose the first") {
  DefaultDevice device;
  SingleDevice<User> model(device, UserConfig{.layers = 1});
  model.train_step(make_batch(0, 0, 1, 1));
  model.train_step(make_batch(0, 0, 1, 1));  // no earlier gradients to lose
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  const char* text =
      "weft: train_step twice without an optimizer's step between them: the gradients of the first would be lost. To accumulate, "
      "give one Batch with more micro_batches; to go on without them, call model.discard_gradients()";
  model.train_step(make_batch(1, 0, 1, 1));  // earlier gradients have no optimizer
  CHECK_THROWS_WITH_AS(model.train_step(make_batch(2, 0, 1, 1)), text, UsageError);
  model.evaluate(make_batch(1, 0, 1, 1));
  model.discard_gradients();
  model.train_step(make_batch(2, 0, 1, 1));
}

TEST_CASE("a member that no forward reads is a parameter of the model all the same: it has a name and its initial value") {
  DefaultDevice device;
  SingleDevice<User> model(device, UserConfig{.layers = 2});
  const std::vector<std::string> names = model.parameter_names();
  for (const char* name : {"block.0.unused", "block.1.unused"}) {
    CHECK(std::count(names.begin(), names.end(), name) == 1);
    CHECK(model.parameter(name) == std::vector<double>(UserConfig().width, 1.0));
  }
}

TEST_CASE("a loss that differs between ranks of an Invariant axis is refused") {
  std::mutex mutex;
  std::vector<std::string> texts;
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
          DenseMesh mesh(world, Degrees{.tp = 2, .pp = 2});
          ModelOptions options;
          options.shard.stage = 0;
          options.pipeline.schedule = schedule::choose("1f1b");
          Ring4 model(mesh, UserConfig{.off = 0.1}, options);
          try {
            model.train_step(make_batch(0, 0, 1, 4));
          } catch (const UsageError& error) {
            std::lock_guard lock(mutex);
            texts.push_back(error.what());
          }
        }) == 0);
  REQUIRE(texts.size() == 4);
  for (const auto& text : texts)
    CHECK(text ==
          "weft: the loss of tp rank 1 is not that of tp rank 0, though by its type they are the same (Invariant): is it "
          "a sum over a rank's own columns? Bring the losses together before sum_losses: to<Invariant<tp>>(context, x), "
          "log_sum_exp(context, z, columns)");
}

TEST_CASE("a loss that is a mean after all is refused in the first step, in every layout") {
  for (const MatrixEntry& entry : {MatrixEntry{1, {}, 1},
                                   {1, {}, 8},
                                   {2, {}, 2},
                                   {2, {.tp = 2}, 4},
                                   {2, {.cp = 2}, 2},
                                   {4, {.tp = 2, .pp = 2}, 4, "1f1b", 3}}) {
    std::mutex mutex;
    std::string said;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            DenseMesh mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            options.pipeline.schedule = schedule::choose("1f1b");
            const Batch batch = make_batch(0, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches);
            Sequence4 model(mesh, UserConfig{.mean = true}, options);
            try {
              model.train_step(batch);
            } catch (const UsageError& error) {
              std::lock_guard lock(mutex);
              said += error.what();
              throw;
            }
          }) != 0);
    CHECK(said.starts_with("weft: the loss of this model's back is not a sum over tokens: that of"));
  }
}

TEST_CASE("data ranks whose sequences are of different lengths draw the masks of one rank") {
  // 4 sequences of 8 tokens and 4 of 4, as one batch with different micro-batches, and as separate batches of two data-parallel
  // ranks.
  const auto part = [](std::size_t first, std::size_t count, bool alone) {
    Batch batch{.sequences = count,
                .length = alone        ? 8
                          : first == 0 ? std::size_t(8)
                                       : 4,
                .micro_batches = count / 4,
                .first_sequence = first};
    for (std::size_t sequence = first; sequence < first + count; ++sequence) {
      const std::size_t length = sequence < 4 ? 8 : 4;
      if (alone && sequence % 4 == 0) batch.differing.push_back({4, length});
      for (std::size_t i = 0; i < length; ++i) {
        batch.tokens.push_back(std::int32_t(key_of(sequence, i) % batch_vocabulary));
        batch.targets.push_back(std::int32_t(key_of(sequence, i, 7) % batch_vocabulary));
      }
    }
    return batch;
  };
  const models::GptConfig config{
      .vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 2, .sequence = 8, .dropout = 0.3};
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> one(device, config);
  const double expected = one.train_step(part(0, 8, true));
  for (const int stage : {0, 3})
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            FullyShardedDataParallel<models::BasicGpt<double>> model(mesh, config, {.shard = {.stage = stage}});
            CHECK(model.train_step(part(4 * std::size_t(world.rank()), 4, false)) == doctest::Approx(expected).epsilon(1e-12));
          }) == 0);
}
