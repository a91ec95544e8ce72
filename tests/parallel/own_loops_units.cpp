// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/unreduced_gradients.hpp
// covers: weft/pipeline/unit_calls.hpp weft/pipeline/unit_outputs.hpp
// Users' own loops over models of several units: the model's own loss and losses of its outputs, with several micro-batches, have
// the gradients of train_step in every layout except a pipeline, with a loss scale, and bit by bit in reproducible runs.

#include <weft/pipeline/unit_calls.hpp>
#include <weft/pipeline/unit_outputs.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

namespace {

void append(std::vector<double>& all, const std::vector<double>& more) { all.insert(all.end(), more.begin(), more.end()); }

/// Steps of a loop: every loss, gradient, norm and parameter. step(model, batch) returns the loss.
template <class M>
std::vector<double> run_steps(M& model, const auto& batch_of, const auto& step) {
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  std::vector<double> seen;
  for (std::uint64_t i = 0; i < 3; ++i) {
    seen.push_back(step(model, batch_of(i)));
    for (const std::string& name : model.parameter_names()) append(seen, model.gradient(name));
    seen.push_back(optimizer.step().gradient_norm);
  }
  for (const std::string& name : model.parameter_names()) append(seen, model.parameter(name));
  return seen;
}

/// The steps of train_step.
const auto trained = [](auto& model, const auto& batch) { return model.train_step(batch); };
/// The model's own loss of each micro-batch.
const auto own_loss = [](auto& model, const auto& batch) {
  double sum = 0;
  for (std::size_t i = 0; i < batch.micro_batches; ++i) {
    auto loss = model.loss(batch, MicroBatchIndex{i});
    sum += loss.value();
    loss.backward();
  }
  return sum;
};
/// The same with all forwards before the first backward, each in two halves.
const auto in_halves = [](auto& model, const auto& batch) {
  using Loss = decltype(model.loss(batch, MicroBatchIndex{0}));
  std::vector<Loss> losses;
  double sum = 0;
  for (std::size_t i = 0; i < batch.micro_batches; ++i)
    for (int half = 0; half < 2; ++half) losses.push_back(model.loss(batch, MicroBatchIndex{i}));
  for (Loss& loss : losses) {
    loss.backward(0.5);
    sum += 0.5 * loss.value();
  }
  return sum;
};
/// A loss of the last unit's predictions.
const auto own_outputs = [](auto& model, const auto& batch) {
  double sum = 0;
  for (std::size_t i = 0; i < batch.micro_batches; ++i) {
    const auto fields = model.inputs(batch, MicroBatchIndex{i});
    auto call = model.forward(batch, MicroBatchIndex{i});
    auto loss = model.loss(
        batch, MicroBatchIndex{i},
        [](const auto& x, const auto& y) { return sum_losses(HalfSquares()(x - to<Invariant<tp>>(y))); }, call.output(),
        fields[wanted_field]);
    sum += loss.value();
    call.backward(std::get<0>(loss.backward()));
  }
  return sum;
};
/// Cross-entropy of a language model's logits.
const auto own_logits = [](auto& model, const auto& batch) {
  double sum = 0;
  for (std::size_t i = 0; i < batch.micro_batches; ++i) {
    auto call = model.forward(batch, MicroBatchIndex{i});
    const auto& z = call.output();
    const std::size_t rows = z.rows(), first = batch.tokens_before(i);
    Tensor<std::int32_t, DefaultDevice::execution_space> targets(z.device(), {rows});
    copy_from_host(targets, std::span<const std::int32_t>(batch.targets).subspan(first, rows));
    auto loss = model.loss(
        batch, MicroBatchIndex{i},
        [targets](const auto& x) {
          using C = typename std::remove_cvref_t<decltype(x)>::context_type;
          using Ids = weft::detail::input_t<std::int32_t, C>;
          return cross_entropy(x, Variable<C, Ids>(relabel<Ids>(targets), x.tape()), batch_vocabulary);
        },
        z);
    sum += loss.value();
    call.backward(loss.backward());
  }
  return sum;
};

const std::vector<MatrixEntry> layouts = {
    {1, {}, 2},        {2, {}, 1, "", 0},        {2, {}, 4, "", 1},        {2, {}, 2, "", 2},        {4, {}, 2, "", 3},
    {2, {.tp = 2}, 2}, {4, {.tp = 2}, 2, "", 1}, {4, {.tp = 2}, 1, "", 3}, {8, {.tp = 2}, 2, "", 3},
};

template <class Composition, class Axes>
void check_loop(const typename Composition::Config& config, const auto& batch_of, const auto& step,
                const std::vector<MatrixEntry>& entries) {
  using Model = typename Composition::model_type;
  DefaultDevice device;
  SingleDevice<Model> one(device, config);
  const std::vector<double> expected = run_steps(
      one, [&](std::uint64_t i) { return batch_of(i, std::size_t(0), std::size_t(1), std::size_t(1)); }, trained);
  double scale = 0;
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  for (const MatrixEntry& entry : entries) {
    INFO("world " << entry.world << ", tp(" << entry.degrees.tp << "), ZeRO " << entry.zero);
    std::mutex mutex;
    double largest = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            Axes mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            Composition model(mesh, config, options);
            const std::vector<double> seen = run_steps(
                model,
                [&](std::uint64_t i) {
                  return batch_of(i, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches);
                },
                step);
            std::lock_guard lock(mutex);
            REQUIRE(seen.size() == expected.size());
            for (std::size_t i = 0; i < seen.size(); ++i)
              largest = std::isfinite(seen[i]) ? std::max(largest, std::abs(seen[i] - expected[i]) / scale) : INFINITY;
          }) == 0);
    CHECK(largest <= 1e-12);
  }
}

const auto mlp_batch = [](std::uint64_t step, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  return Mlp::make_batch({}, step, rank, ranks, micro_batches);
};
const auto gpt_batch = [](std::uint64_t step, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  return make_batch(int(step), rank, ranks, micro_batches);
};
const models::GptConfig gpt{.vocabulary = batch_vocabulary,
                            .layers = 2,
                            .width = 16,
                            .heads = 4,
                            .kv_heads = 2,
                            .sequence = batch_length,
                            .dropout = 0.1};
using Gpt = models::BasicGpt<double>;

/// A language model that is one Module: embeddings of tokens and positions, and the logits of each.
struct TokenModule : Module<TokenModule> {
  using scalar = double;
  struct Config {
    std::size_t width = 6;
  };
  Embedding table;
  LearnedPositions positions;
  Linear<> head;
  TokenModule(const auto& context, const Config& config)
      : table(context / "table", batch_vocabulary, config.width, 0.5),
        positions(context / "positions", batch_length, config.width, 0.5),
        head(context / "head", config.width, batch_vocabulary) {}
  auto forward(const auto& tokens) const { return head(positions(table(tokens))); }
  auto loss(const auto& batch) const {
    return cross_entropy(forward(batch[fields::tokens]), batch[fields::targets], batch_vocabulary);
  }
};
/// Cross-entropy of a Module's logits, with the targets of model.inputs.
const auto module_logits = [](auto& model, const auto& batch) {
  double sum = 0;
  for (std::size_t i = 0; i < batch.micro_batches; ++i) {
    const auto fields = model.inputs(batch, MicroBatchIndex{i});
    auto call = model.forward(batch, MicroBatchIndex{i});
    auto loss = model.loss(
        batch, MicroBatchIndex{i}, [](const auto& x, const auto& y) { return cross_entropy(x, y, batch_vocabulary); },
        call.output(), fields[fields::targets]);
    sum += loss.value();
    call.backward(std::get<0>(loss.backward()));
  }
  return sum;
};

}  // namespace

TEST_CASE("a Module on tokens in custom training loops, with sequences that cp cuts") {
  check_loop<DataParallel<TokenModule>, Mesh<dp>>({}, gpt_batch, module_logits, {{1, {}, 4}, {2, {}, 2}});
  using Layout = FullyShardedDataParallel<ContextParallel<TokenModule>>;
  const std::vector<MatrixEntry> cut{{2, {.cp = 2}, 1}, {2, {.cp = 2}, 4}, {4, {.cp = 2}, 2, "", 2}};
  check_loop<Layout, Mesh<dp, cp>>({}, gpt_batch, trained, cut);
  check_loop<Layout, Mesh<dp, cp>>({}, gpt_batch, own_loss, cut);
  check_loop<Layout, Mesh<dp, cp>>({}, gpt_batch, module_logits, cut);
}
TEST_CASE("a stack in custom training loops: losses, gradients and parameters of train_step on one rank") {
  using Layout = FullyShardedDataParallel<TensorParallel<Mlp>>;
  check_loop<Layout, Mesh<dp, tp>>({}, mlp_batch, own_loss, layouts);
  check_loop<Layout, Mesh<dp, tp>>({}, mlp_batch, in_halves, {{2, {}, 2, "", 1}, {4, {}, 2, "", 3}, {4, {.tp = 2}, 2, "", 2}});
  check_loop<Layout, Mesh<dp, tp>>({}, mlp_batch, own_outputs, layouts);
}
TEST_CASE("a Module's own loss in custom training loops") {
  check_loop<FullyShardedDataParallel<TensorParallel<MlpModule>>, Mesh<dp, tp>>({}, mlp_batch, own_loss, layouts);
  check_loop<FullyShardedDataParallel<TensorParallel<MlpModule>>, Mesh<dp, tp>>({}, mlp_batch, in_halves, {{4, {}, 2, "", 3}});
}
TEST_CASE("a recipe in custom training loops: its loss, and one of its logits, with dropout and a tied table") {
  using Layout = FullyShardedDataParallel<TensorParallel<Gpt>>;
  check_loop<Layout, Mesh<dp, tp>>(gpt, gpt_batch, own_loss,
                                   {{1, {}, 4}, {2, {}, 2, "", 1}, {4, {}, 2, "", 3}, {4, {.tp = 2}, 2, "", 2}});
  check_loop<Layout, Mesh<dp, tp>>(gpt, gpt_batch, own_logits, {{1, {}, 4}, {4, {}, 1, "", 3}, {4, {.tp = 2}, 2, "", 2}});
  check_loop<FullyShardedDataParallel<ContextParallel<SequenceParallel<Gpt>>>, Mesh<dp, cp, tp>>(
      gpt, gpt_batch, own_loss, {{4, {.tp = 2, .cp = 2}, 2, "", 3}});
}

TEST_CASE("reproducible custom training loops have the bits of one rank's train_step") {
  const ModelOptions options{.numerics = {.reproducible = true}};
  DefaultDevice device;
  const auto one_rank = [&](const auto& step) {
    SingleDevice<Gpt> one(device, gpt, options);
    optim::AdamW optimizer(one, {.learning_rate = 1e-2});
    std::vector<double> all;
    for (int i = 0; i < 2; ++i) {
      step(one, make_batch(i, 0, 1, 4));
      optimizer.step();
    }
    for (const std::string& name : one.parameter_names()) append(all, one.parameter(name));
    return all;
  };
  // Several calls of one micro-batch are added up before the micro-batches are, so layouts agree on those bits, too.
  const std::vector<double> expected = one_rank(trained), halves = one_rank(in_halves);
  CHECK(one_rank(own_loss) == expected);
  for (const int stage : {0, 1, 3})
    CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<dp> mesh(world);
            ModelOptions own = options;
            own.shard.stage = stage;
            FullyShardedDataParallel<Gpt> model(mesh, gpt, own);
            FullyShardedDataParallel<Gpt> twin(mesh, gpt, own);
            const auto train = [&](auto& one, const auto& step) {
              optim::AdamW optimizer(one, {.learning_rate = 1e-2});
              std::vector<double> all;
              for (int i = 0; i < 2; ++i) {
                step(one, make_batch(i, std::size_t(world.rank()), 2, 2));
                optimizer.step();
              }
              for (const std::string& name : one.parameter_names()) append(all, one.parameter(name));
              return all;
            };
            if (train(model, own_loss) != expected) throw Error("other bits than one rank's train_step");
            if (train(twin, in_halves) != halves) throw Error("other bits than one rank's, with two calls of a micro-batch");
          }) == 0);
}

TEST_CASE("a loss scale is in the gradients of a custom training loop, and divided out") {
  const auto all_of = [](const auto& step, double scale) {
    ModelOptions options;
    if (scale != 1) options.numerics.loss_scale = LossScaleOptions{.initial = scale, .growth = 1};
    DefaultDevice device;
    SingleDevice<Mlp> model(device, {}, options);
    return run_steps(
        model, [](std::uint64_t i) { return mlp_batch(i, 0, 1, 2); }, step);
  };
  CHECK(all_of(own_loss, 1024) == all_of(own_loss, 1));  // powers of two change no digit
  CHECK(all_of(own_outputs, 1024) == all_of(own_outputs, 1));
  DefaultDevice device;
  {  // gradients from another model's loss are not scaled by this one's
    SingleDevice<Mlp> scaled(device, {}, ModelOptions{.numerics = {.loss_scale = LossScaleOptions{.initial = 8}}});
    optim::Sgd step(scaled, {.learning_rate = 0.1});
    auto call = scaled.forward(mlp_batch(0, 0, 1, 1));
    call.backward(call.output());
    CHECK_THROWS_WITH_AS(
        step.step(),
        "weft: a step of a custom training loop with a loss scale of 8.000000 and without a loss of this model: its "
        "gradients would be divided by a factor that nothing multiplied. Begin with model.loss of the model "
        "whose optimizer steps, or call model.discard_gradients()",
        UsageError);
    scaled.discard_gradients();
    scaled.loss(mlp_batch(0, 0, 1, 1)).backward();
    step.step();
  }
  SingleDevice<models::BasicGpt<float16>> model(device, gpt);
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  std::vector<double> losses;
  for (int i = 0; i < 20; ++i) {
    losses.push_back(own_loss(model, make_batch(0, 0, 1, 2)));
    optimizer.step();
  }
  CHECK(optimizer.steps() > 5);
  CHECK(losses.back() < losses.front() - 0.1);
}

TEST_CASE("frozen units in front have no part in a custom training loop") {
  DefaultDevice device;
  SingleDevice<Mlp> model(device, {}), other(device, {});
  for (auto* one : {&model, &other}) one->freeze("first.*", "middle.0.*");
  const auto batch = mlp_batch(0, 0, 1, 2);
  own_loss(model, batch);
  other.train_step(batch);
  for (const std::string& name : model.parameter_names()) {
    const auto seen = model.gradient(name), expected = other.gradient(name);
    REQUIRE(seen.size() == expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == doctest::Approx(expected[i]).epsilon(1e-13));
  }
}

TEST_CASE("calls that are refused") {
  DefaultDevice device;
  SingleDevice<Mlp> model(device, {});
  const auto batch = mlp_batch(0, 0, 1, 2);
  CHECK_THROWS_WITH_AS(
      model.loss(batch),
      "weft: model.forward of a batch of 2 micro-batches: a call takes one of them, model.forward(batch, MicroBatchIndex{0}) and "
      "so on, and their gradients add up until the optimizer's step; or set micro_batches to 1",
      UsageError);
  CHECK_THROWS_WITH_AS(model.forward(batch, MicroBatchIndex{2}),
                       "weft: MicroBatchIndex{2} of a batch of 2 micro-batches: they count from 0", UsageError);
  auto loss = model.loss(batch, MicroBatchIndex{1});
  loss.backward();
  CHECK_THROWS_WITH_AS(loss.backward(), "weft: backward of one loss twice: its saved values are gone; compute the loss again",
                       UsageError);
  auto call = model.forward(batch, MicroBatchIndex{0});
  const auto gradient = call.output();
  call.backward(gradient);
  CHECK_THROWS_AS(call.backward(gradient), UsageError);
  model.train_step(batch);  // without an optimizer the open step is discarded
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  model.loss(batch, MicroBatchIndex{0}).backward();
  CHECK_THROWS_AS(model.train_step(batch), UsageError);
  model.discard_gradients();
  SingleDevice<Mlp> same(device, {}, ModelOptions{.numerics = {.reproducible = true}});
  same.loss(batch, MicroBatchIndex{0}).backward();
  CHECK_THROWS_WITH_AS(
      same.loss(mlp_batch(1, 0, 1, 4), MicroBatchIndex{0}),
      doctest::Contains("weft: a reproducible step of a custom training loop began with a batch of 2 micro-batches "
                        "and goes on with one of 4"),
      UsageError);
}
