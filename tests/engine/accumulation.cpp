// SPDX-License-Identifier: Apache-2.0
// Gradients over micro-batches and ranks. Any division of a batch gives the whole batch's gradients. Tokens without a target have
// no effect on any rank. An unused parameter has a gradient of zero, and a missing sum is an error.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <weft/weft.hpp>

using namespace weft;

namespace {

constexpr std::size_t sequences = 8, length = 8, vocabulary = 11;

/// A share of the batch. `counts(index)`: true if the token with this global index has a target.
template <class F>
Batch make_batch(std::size_t share, std::size_t shares, std::size_t micro_batches, F counts) {
  Batch batch;
  batch.step = 0;  // the same dropout in every call
  batch.sequences = sequences / shares;
  batch.length = length;
  batch.micro_batches = micro_batches;
  batch.first_sequence = share * batch.sequences;
  for (std::size_t i = 0; i < batch.sequences * length; ++i) {
    const std::size_t index = batch.first_sequence * length + i;
    batch.tokens.push_back(std::int32_t(key_of(1, index) % vocabulary));
    batch.targets.push_back(counts(index) ? std::int32_t(key_of(2, index) % vocabulary) : -1);
  }
  return batch;
}

const auto all = [](std::size_t) { return true; };

using Gradients = std::map<std::string, std::vector<double>>;

template <class Model>
Gradients gradients_of(Model& model) {
  Gradients gradients;
  model.for_each_state([&](ParameterState& state) {
    const auto* data = static_cast<const double*>(state.gradient().get());
    REQUIRE(data != nullptr);
    gradients[state.name()].assign(data, data + state.size());
  });
  return gradients;
}

/// The largest difference, relative to the largest element of the same gradient. `mine` may lack parameters of other stages.
double difference(const Gradients& mine, const Gradients& expected) {
  double worst = mine.empty() ? INFINITY : 0;
  for (const auto& [name, values] : mine) {
    double scale = 1e-300;
    for (const double value : expected.at(name)) scale = std::max(scale, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(values[i] - expected.at(name)[i]) / scale;
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
    }
  }
  return worst;
}

const models::GptConfig gpt_config{
    .vocabulary = vocabulary, .layers = 2, .width = 16, .heads = 2, .sequence = length, .dropout = 0.1};

// --- a small model of our own ------------------------------------------------------------------------------------------------

/// A token table, and a parameter that nothing uses.
struct Front {
  Embedding embedding;
  Parameter<> unused;

  template <class Context>
  explicit Front(const Context& context)
      : embedding(context / "tokens", vocabulary, 8, 1.0), unused(context, "unused", {5}, ones) {}
  auto forward(const auto& context, const auto& ids) const { return embedding.forward(context, ids); }
  auto backward_input(const auto& context, auto saved, const auto& g) {
    return embedding.backward_input(context, std::move(saved), g);
  }
  void backward_weight(const auto& context, auto deferred) { embedding.backward_weight(context, std::move(deferred)); }
};

/// Scales in even steps, and is the identity in odd ones.
struct Gate {
  Parameter<> gain;

  template <class Context>
  explicit Gate(const Context& context) : gain(context, "gain", {8}, ones) {}
  auto forward(const auto& context, const auto& x) const {
    return Result{open(context) ? times_row(x, gain.for_operand(x)) : x, x};
  }
  template <class Context, class X, class G>
  G backward(const Context& context, X x, const G& g) {
    if (!open(context)) return g;
    gain.accumulate(context, sum_rows(times(g, x)));
    return times_row(g, gain.for_operand(x));
  }
  static bool open(const auto& context) { return context.env.step % 2 == 0; }
};

template <class Context>
auto make_small_block(const Context& context) {
  return Residual(Sequential(LayerNorm(context / "norm", 8), Linear<Whole>(context / "linear", 8, 8, {.standard_deviation = 0.3}),
                             Gelu{}, Gate(context / "gate")));
}

struct Small {
  struct Config {};
  using scalar = double;
  using Block = decltype(make_small_block(std::declval<const Context<Compute<DefaultDevice::execution_space, double>>&>()));
  using Front = ::Front;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config&) { return 2; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config&) { return Front(context / "front"); }
  static Block make_block(const auto& context, const Config&, std::size_t index) {
    return make_small_block(context / "block" / std::to_string(index));
  }
  static Back make_back(const auto& context, const Config&, Front*) {
    return Back(LayerNorm(context / "back.norm", 8), Embedding(context / "back.table", vocabulary, 8, 1.0).table);
  }
};

}  // namespace

TEST_CASE("micro-batches add up to the whole batch") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> model(device, gpt_config);
  const double loss = model.train_step(make_batch(0, 1, 1, all));
  const Gradients expected = gradients_of(model);
  CHECK(difference(expected, expected) == 0);
  for (const std::size_t micro_batches : {2, 4, 8}) {
    const Batch batch = make_batch(0, 1, micro_batches, all);
    CHECK(std::abs(model.train_step(batch) / loss - 1) <= 1e-14);
    const Gradients first = gradients_of(model);
    CHECK(difference(first, expected) <= 1e-12);
    model.train_step(batch);  // nothing is left of the step before
    CHECK(gradients_of(model) == first);
  }
}

TEST_CASE("a pipeline adds micro-batches in their order: bitwise what accumulation on one rank gives") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> single(device, gpt_config);
  for (const std::size_t repetitions : {1, 5}) {  // 40 micro-batches: message tags are reused
    const Batch some = make_batch(0, 1, 1, all);
    Batch batch = some;
    for (std::size_t i = 1; i < repetitions; ++i) {
      batch.tokens.insert(batch.tokens.end(), some.tokens.begin(), some.tokens.end());
      batch.targets.insert(batch.targets.end(), some.targets.begin(), some.targets.end());
    }
    batch.sequences = batch.micro_batches = repetitions * sequences;
    const double loss = single.train_step(batch);
    const Gradients expected = gradients_of(single);
    std::mutex mutex;
    CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
            Mesh<pp> mesh(world, {.pp = 2});
            PipelineParallel<models::BasicGpt<double>> model(mesh, gpt_config);
            const double mine = model.train_step(batch);
            std::lock_guard lock(mutex);
            CHECK(mine == loss);
            for (const auto& [key, values] : gradients_of(model)) {
              const std::string& name = key;  // clang before 16 does not capture bindings
              INFO(name);
              if (name == "transformer.wte.weight")
                CHECK(difference({{name, values}}, expected) <= 1e-14);  // two stages' sums are added
              else CHECK(values == expected.at(name));
            }
          }) == 0);
  }
}

namespace {

/// Micro-batches with different sizes and lengths. With two data-parallel ranks each rank has half of each.
Batch differing_batch(std::vector<MicroBatch> micro_batches, std::size_t first_sequence, std::size_t salt) {
  Batch batch{.length = length,
              .micro_batches = micro_batches.size(),
              .first_sequence = first_sequence,
              .differing = std::move(micro_batches)};
  batch.sequences = batch.sequences_before(batch.micro_batches);
  for (std::size_t i = 0; i < batch.tokens_before(batch.micro_batches); ++i) {
    batch.tokens.push_back(std::int32_t(key_of(salt, i) % vocabulary));
    batch.targets.push_back(i % 7 == 0 ? -1 : std::int32_t(key_of(salt + 1, i) % vocabulary));
  }
  return batch;
}

Batch alone(const Batch& whole, std::size_t micro) {
  const MicroBatch size = whole.micro_batch(micro);
  const auto begin = std::ptrdiff_t(whole.tokens_before(micro)), end = std::ptrdiff_t(whole.tokens_before(micro + 1));
  return {.tokens = {whole.tokens.begin() + begin, whole.tokens.begin() + end},
          .targets = {whole.targets.begin() + begin, whole.targets.begin() + end},
          .sequences = size.sequences,
          .length = size.length};
}

/// A model whose blocks hand on more and more columns.
template <class Context>
auto make_widening_block(const Context& context, std::size_t index) {
  return Sequential(LayerNorm(context / "norm", 4 * (index + 1)),
                    Linear<Whole>(context / "linear", 4 * (index + 1), 4 * (index + 2), {.standard_deviation = 0.5}), Gelu{});
}
struct Widening {
  struct Config {};
  using scalar = double;
  using Block = decltype(make_widening_block(std::declval<const Context<Compute<DefaultDevice::execution_space, double>>&>(), 0));
  using Front = Embedding;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config&) { return 4; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config&) { return Embedding(context / "tokens", vocabulary, 4, 1.0); }
  static Block make_block(const auto& context, const Config&, std::size_t index) {
    return make_widening_block(context / "block" / std::to_string(index), index);
  }
  static Back make_back(const auto& context, const Config&, Front*) {
    return Back(LayerNorm(context / "back.norm", 20), Embedding(context / "back.table", vocabulary, 20, 1.0).table);
  }
};

}  // namespace

TEST_CASE("micro-batches of different shapes count by their tokens, and a pipeline hands them on") {
  auto config = gpt_config;
  const Batch batch = differing_batch({{2, 8}, {1, 3}, {3, 5}, {1, 8}}, 0, 11);
  DefaultDevice device;
  {
    config.dropout = 0;  // masks are drawn by place in the global batch
    SingleDevice<models::BasicGpt<double>> model(device, config);
    const double loss = model.train_step(batch);
    const Gradients together = gradients_of(model);
    CHECK(std::abs(model.evaluate(batch) / loss - 1) <= 1e-14);
    Gradients sum;
    double losses = 0, all_targets = 0;
    for (std::size_t micro = 0; micro < 4; ++micro) {
      const Batch one = alone(batch, micro);
      const double count =
          double(std::count_if(one.targets.begin(), one.targets.end(), [](std::int32_t target) { return target >= 0; }));
      losses += count * model.train_step(one);
      all_targets += count;
      for (const auto& [name, values] : gradients_of(model)) {
        auto& to = sum[name];
        to.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) to[i] += count * values[i];
      }
    }
    for (auto& [name, values] : sum)
      for (double& value : values) value /= all_targets;
    CHECK(std::abs(losses / all_targets / loss - 1) <= 1e-14);
    CHECK(difference(together, sum) <= 1e-12);
  }
  SingleDevice<models::BasicGpt<double>> single(device, gpt_config);
  const double loss = single.train_step(batch);
  const Gradients expected = gradients_of(single);
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<pp> mesh(world, {.pp = 2});
          PipelineParallel<models::BasicGpt<double>> model(mesh, gpt_config);
          const double mine = model.train_step(batch);
          const Gradients gradients = gradients_of(model);
          const double evaluated = model.evaluate(batch);
          std::lock_guard lock(mutex);
          CHECK(mine == loss);
          CHECK(difference(gradients, expected) <= 1e-14);
          CHECK(evaluated != 0);
        }) == 0);
}

TEST_CASE("a pipeline whose stages hand on tensors of different widths") {
  DefaultDevice device;
  SingleDevice<Widening> single(device, {});
  const Batch batch = differing_batch({{2, 8}, {1, 3}, {3, 5}, {1, 8}}, 0, 5);
  const double loss = single.train_step(batch);
  const Gradients expected = gradients_of(single);
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          Mesh<pp> mesh(world, {.pp = 4});
          PipelineParallel<Widening, schedule::ZeroBubbleH1> model(mesh, {});
          const double mine = model.train_step(batch);
          std::lock_guard lock(mutex);
          CHECK(mine == loss);
          CHECK(difference(gradients_of(model), expected) == 0);
        }) == 0);
}

TEST_CASE("the loss is the mean over the tokens that count, wherever they are") {
  // Among four data-parallel ranks the first has no target, the second one, the third all, the last some.
  const auto counts = [](std::size_t index) {
    const std::size_t rank = index / (2 * length);
    return rank == 1 ? index % (2 * length) == 3 : rank == 2 || (rank == 3 && index % 3 != 0);
  };
  DefaultDevice device;
  SingleDevice<Small> single(device, {});
  const double loss = single.train_step(make_batch(0, 1, 1, counts));
  const Gradients expected = gradients_of(single);

  double sum = 0;
  std::size_t tokens = 0;
  for (std::size_t s = 0; s < sequences; ++s) {
    const Batch alone = make_batch(s, sequences, 1, counts);
    const auto count =
        std::size_t(std::count_if(alone.targets.begin(), alone.targets.end(), [](std::int32_t target) { return target >= 0; }));
    if (count == 0) continue;
    sum += double(count) * single.evaluate(alone);
    tokens += count;
  }
  CHECK(std::abs(loss / (sum / double(tokens)) - 1) <= 1e-13);

  for (const std::size_t micro_batches : {1, 2}) {
    std::mutex mutex;
    CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
            Mesh<dp> mesh(world);
            DataParallel<Small> model(mesh, {});
            const double mine = model.train_step(make_batch(std::size_t(world.rank()), 4, micro_batches, counts));
            const double evaluated = model.evaluate(make_batch(std::size_t(world.rank()), 4, micro_batches, counts));
            std::lock_guard lock(mutex);
            CHECK(std::abs(mine / loss - 1) <= 1e-13);
            CHECK(std::abs(evaluated / loss - 1) <= 1e-13);
            CHECK(difference(gradients_of(model), expected) <= 1e-12);
          }) == 0);
  }
}

TEST_CASE("a batch in which nothing counts is refused by all ranks alike; one rank's share may be so") {
  DefaultDevice device;
  SingleDevice<Small> model(device, {});
  const std::string text =
      "weft: batch: none of the 64 targets of the global batch counts (all are negative): there is no loss; leave such a batch "
      "out";
  const auto none = [](std::size_t) { return false; };
  CHECK_THROWS_WITH_AS(model.train_step(make_batch(0, 1, 2, none)), text.c_str(), UsageError);
  CHECK_THROWS_WITH_AS(model.evaluate(make_batch(0, 1, 2, none)), text.c_str(), UsageError);
  std::atomic<int> refused = 0;
  CHECK(run(RunOptions{.ranks = 4}, [&](World& world) {
          Mesh<dp> mesh(world);
          DataParallel<Small> spread(mesh, {});
          const auto share = [&](auto counts) { return make_batch(std::size_t(world.rank()), 4, 1, counts); };
          for (const bool training : {true, false}) try {
              if (training) spread.train_step(share(none));
              else spread.evaluate(share(none));
            } catch (const UsageError& error) {
              refused += error.what() == text;
            }
          const double loss = spread.train_step(share([](std::size_t index) { return index == 3; }));  // on only one rank
          if (!(loss > 0)) throw Error("no loss");
        }) == 0);
  CHECK(refused == 8);
}

TEST_CASE("sequences longer than the model was made for are refused, in training, evaluation and for logits") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> gpt(device, gpt_config);
  SingleDevice<models::BasicLlama<double>> llama(
      device, {.vocabulary = vocabulary, .layers = 1, .width = 8, .heads = 2, .intermediate = 8, .sequence = length});
  const auto check = [](auto& model) {
    Batch batch = make_batch(0, 1, 1, all);
    batch.sequences = 4, batch.length = 16;
    const char* text = "weft: a sequence of 16 tokens, but the model was made for at most 8 (sequence in its config)";
    CHECK_THROWS_WITH_AS(model.train_step(batch), text, ShapeError);
    CHECK_THROWS_WITH_AS(model.evaluate(batch), text, ShapeError);
    batch.micro_batches = 2;
    batch.differing = {{6, 4}, {2, 8}};
    batch.sequences = 8;  // the longest may be shorter than `length` allows
    batch.tokens.resize(40), batch.targets.resize(40);
    CHECK_NOTHROW(model.train_step(batch));
    batch.differing = {{6, 4}, {1, 16}};
    batch.sequences = 7;
    CHECK_THROWS_WITH_AS(model.train_step(batch), text, ShapeError);
    const std::vector<std::int32_t> prompt(length + 1, 3);
    CHECK_THROWS_WITH_AS(model.next_logits(prompt),
                         "weft: a sequence of 9 tokens, but the model was made for at most 8 (sequence in its config)",
                         ShapeError);
    CHECK_NOTHROW(model.next_logits(std::span(prompt).first(length)));
  };
  check(gpt);
  check(llama);
}

TEST_CASE("batches that do not fit are refused") {
  DefaultDevice device;
  SingleDevice<Small> model(device, {});
  Batch batch = make_batch(0, 1, 3, all);
  CHECK_THROWS_WITH_AS(
      model.train_step(batch),
      "weft: batch: sequences(8) % micro-batches(3) != 0: every micro-batch holds the same number of whole sequences",
      ShapeError);
  batch.micro_batches = 1;
  batch.targets.pop_back();
  CHECK_THROWS_WITH_AS(model.train_step(batch), "weft: batch: 64 tokens and 63 targets, expected 8 sequences * 8 of each",
                       ShapeError);
  SingleDevice<models::BasicGpt<double>> gpt(device, gpt_config);
  batch = make_batch(0, 1, 1, all);
  batch.tokens[3] = vocabulary;
  CHECK_THROWS_WITH_AS(gpt.train_step(batch), "weft: batch: token(11) at place 3 is not in the vocabulary(11)", UsageError);
  batch.tokens[3] = -1;
  CHECK_THROWS_WITH_AS(gpt.evaluate(batch), "weft: batch: token(-1) at place 3 is not in the vocabulary(11)", UsageError);
  batch.tokens[3] = 0;
  batch.targets[5] = vocabulary;
  CHECK_THROWS_WITH_AS(gpt.train_step(batch), "weft: batch: target(11) at place 5 is not in the vocabulary(11)", UsageError);
  CHECK_THROWS_WITH_AS(gpt.next_logits(std::vector<std::int32_t>()), "weft: logits of no tokens: at least one is needed",
                       UsageError);
  const std::vector<std::int32_t> prompt{1, vocabulary};
  CHECK_THROWS_WITH_AS(gpt.next_logits(prompt), "weft: batch: token(11) at place 1 is not in the vocabulary(11)", UsageError);
  batch = differing_batch({{2, 8}, {1, 3}}, 0, 1);
  batch.tokens.pop_back();
  CHECK_THROWS_WITH_AS(
      model.train_step(batch),
      "weft: batch: 3 sequences, 18 tokens and 19 targets, but its micro-batches hold 3 sequences and 19 of each", ShapeError);
  batch = differing_batch({{2, 8}, {1, 9}}, 0, 1);
  CHECK_THROWS_WITH_AS(
      model.train_step(batch),
      "weft: batch: a micro-batch of 1 sequences of 9 tokens; there must be at least one of 1 to 8 tokens, the batch's length",
      ShapeError);
  batch.micro_batches = 3;
  CHECK_THROWS_WITH_AS(model.train_step(batch), "weft: batch: 2 differing micro-batches, micro-batches(3)", ShapeError);
}

TEST_CASE("a parameter that a step does not use has a gradient of zero in it") {
  const auto check = [](auto& model, std::size_t share, std::size_t shares) {
    for (std::uint64_t step = 0; step < 4; ++step) {
      Batch batch = make_batch(share, shares, 2, all);
      batch.step = step;
      model.train_step(batch);
      for (const auto& [key, values] : gradients_of(model)) {
        const std::string& name = key;  // clang before 16 does not capture bindings
        INFO(name << " in step " << step);
        const bool used = name != "front.unused" && (step % 2 == 0 || name.find("gate") == std::string::npos);
        CHECK((values != std::vector<double>(values.size(), 0.0)) == used);
      }
    }
  };
  DefaultDevice device;
  SingleDevice<Small> single(device, {});
  check(single, 0, 1);
  std::vector<Gradients> of_rank(2);
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp> mesh(world);
          DataParallel<Small> model(mesh, {});
          check(model, std::size_t(world.rank()), 2);
          of_rank[std::size_t(world.rank())] = gradients_of(model);
        }) == 0);
  CHECK(difference(of_rank[0], gradients_of(single)) <= 1e-12);
  CHECK(of_rank[0] == of_rank[1]);
}

// --- debts -------------------------------------------------------------------------------------------------------------------

namespace {

/// Assigns every rank its own rows, and forgets to sum the gradients.
struct Forgetful : PlainPolicy {
  using axis = cp;
  using hidden_placement = Shard<cp, 0>;
  Forgetful(const Communicator&, DefaultDevice&, const ModelOptions&) {}
};
struct Unsummed : Wrapper<Forgetful, Small> {
  using Wrapper<Forgetful, Small>::Wrapper;
};

template <class F>
std::string unreduced_error(F&& f) {
  try {
    f();
  } catch (const UnreducedGradientError& error) {
    return error.what();
  }
  return "nothing unreduced";
}

}  // namespace

namespace weft {
template <>
inline constexpr int nesting_level<Unsummed> = 15;
}

TEST_CASE("a gradient that owes a sum ends the step, or its reduction over dp") {
  std::vector<std::string> texts(2);
  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<cp> mesh(world, {.cp = 2});
          Unsummed model(mesh, {});
          texts[std::size_t(world.rank())] = unreduced_error([&] { model.train_step(make_batch(0, 1, 1, all)); });
        }) == 0);
  for (const std::string& text : texts)
    CHECK(text == "weft: the gradient of front.tokens.weight is still unreduced over cp after the step: no wrapper sums it");

  CHECK(run(RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, cp> mesh(world, {.cp = 2});
          DataParallel<Unsummed> model(mesh, {});
          texts[std::size_t(world.rank())] = unreduced_error([&] { model.train_step(make_batch(0, 1, 1, all)); });
        }) == 0);
  for (const std::string& text : texts)
    CHECK(text ==
          "weft: the gradient of back.norm.bias is to be summed over dp while it is unreduced over cp: no wrapper sums it");
}
