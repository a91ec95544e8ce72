// SPDX-License-Identifier: Apache-2.0
// Steps that can be recorded: the same bits as train_step, from separate memory; changes that a graph would not see are refused.
// On hosts each step runs directly; cuda/graph.cpp tests the recording, over a test double.

#include <weft/nn/noise.hpp>
#include <weft/parallel/cuda/graphed_step.hpp>
#include <weft/parallel/single_device.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

template <class Model, class Step>
std::vector<double> train(Model& model, Step&& step, bool packed = false, std::size_t data_rank = 0, std::size_t data_ranks = 1) {
  optim::AdamW optimizer(model, {.learning_rate = 1e-2, .clip = 1.0});
  std::vector<double> numbers;
  for (int i = 0; i < 6; ++i) {
    const std::size_t micro_batches = i < 4 ? 2 : 4;  // another shape
    Batch batch = make_batch(std::uint64_t(i), data_rank, data_ranks, micro_batches / data_ranks);
    if (packed && i != 3)  // different in each step, once none
      for (std::size_t token = 0; token < batch.tokens.size(); ++token)
        batch.documents.push_back(token % batch.length > std::size_t(i) ? 1 : 0);
    numbers.push_back(step(batch));
    numbers.push_back(optimizer.step().gradient_norm);
    numbers.push_back(model.evaluate(batch));
  }
  return numbers;
}
models::GptConfig without_dropout() {
  models::GptConfig config = gpt_config();
  config.dropout = 0;
  return config;
}
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// A mixture without a declaration of its experts.
struct Silent : models::Mixtral {
  static void experts() {}
};

// Layers that draw random numbers, and one that does not.
struct DropsOut : Module<DropsOut> {
  Dropout draw;
  explicit DropsOut(const auto& context) : draw(context / "draw", 0.1) {}
  auto forward(const auto& x) const { return draw(x); }
};
struct Noisy : Module<Noisy> {
  Noise draw;
  explicit Noisy(const auto& context) : draw(context / "draw") {}
  auto forward(const auto& x) const { return x + 0.1 * draw.normal(x); }
};
struct Calm : Module<Calm> {
  explicit Calm(const auto&) {}
  auto forward(const auto& x) const { return 0.5 * x; }
};
/// A recipe of such a layer between an embedding and a head.
template <class Inside>
struct Drawing {
  struct Config {
    std::size_t width = 8, vocabulary = batch_vocabulary;
  };
  using scalar = float;
  using Front = Embedding;
  using Block = Inside;
  using Back = LanguageHead<LayerNorm>;
  static std::size_t blocks(const Config&) { return 1; }
  static std::size_t vocabulary(const Config& config) { return config.vocabulary; }
  static void check(const Config&, const ModelDegrees&) {}
  static Front make_front(const auto& context, const Config& config) {
    return Embedding(context / "tokens", config.vocabulary, config.width, 0.3);
  }
  static Block make_block(const auto& context, const Config&, std::size_t) { return Block(context / "inside"); }
  static Back make_back(const auto& context, const Config& config, Front* front) {
    return Back(LayerNorm(context / "norm", config.width), front->table);
  }
};

}  // namespace

TEST_CASE_TEMPLATE("the numbers of train_step", T, float, bfloat16, float16) {
  DefaultDevice device, other;
  SingleDevice<models::BasicGpt<T>> plain(device, without_dropout()), model(other, without_dropout());
  const auto want = train(plain, [&](const Batch& batch) { return plain.train_step(batch); });
  gpu::GraphedStep step(model);
  CHECK(train(model, step) == want);
}

TEST_CASE("packed documents, others in each step") {
  DefaultDevice device, other;
  SingleDevice<models::Gpt> plain(device, without_dropout()), model(other, without_dropout());
  const auto plainly = [&](const Batch& batch) { return plain.train_step(batch); };
  const auto want = train(plain, plainly, true);
  gpu::GraphedStep step(model);
  CHECK(train(model, step, true) == want);
}

/// A model on several ranks gives the numbers of its train_step.
template <class Model>
void same_over_ranks(int dp_ranks, int tp_ranks) {
  const int code = runtime::run(runtime::RunOptions{.ranks = dp_ranks * tp_ranks}, [&](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = std::size_t(tp_ranks), .dp = std::size_t(dp_ranks)});
    Model plain(mesh, without_dropout()), model(mesh, without_dropout());
    const auto rank = std::size_t(mesh.rank(dp{})), ranks = std::size_t(dp_ranks);
    const auto want = train(
        plain, [&](const Batch& batch) { return plain.train_step(batch); }, false, rank, ranks);
    gpu::GraphedStep step(model);
    if (train(model, step, false, rank, ranks) != want) throw Error("a step that can be recorded gave other numbers");
  });
  CHECK(code == 0);
}

TEST_CASE("over several ranks: the numbers of train_step") {
  same_over_ranks<DataParallel<TensorParallel<models::Gpt>>>(2, 2);
  same_over_ranks<DataParallel<TensorParallel<models::Gpt>>>(1, 2);
}

TEST_CASE("over several ranks: a hook beside the sums is refused") {
  const int code = runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
    const Mesh<dp> mesh(world);
    DataParallel<models::Gpt, MixedPrecision<float, bfloat16>> model(mesh, without_dropout());
    if (refusal([&] { gpu::GraphedStep step(model); }).find("a communication hook") == std::string::npos)
      throw Error("not refused");
  });
  CHECK(code == 0);
}

TEST_CASE("a step takes its memory once, and it is given to no other owner") {
  DefaultDevice device;
  SingleDevice<models::Gpt> model(device, without_dropout());
  gpu::GraphedStep step(model);
  const Batch batch = make_batch(0, 0, 1, 2);
  step(batch);
  // All memory that the device hands out meanwhile is overwritten, so a step that used it would give other numbers.
  const double loss = step(batch);
  std::vector<detail::Buffer> others;
  for (std::size_t bytes = 64; bytes <= (1 << 16); bytes *= 2)
    for (int i = 0; i < 8; ++i) {
      others.push_back(device.allocate(bytes));
      std::memset(others.back().get(), 0xff, bytes);
    }
  CHECK(step(batch) == loss);
  for (const detail::Buffer& other : others) CHECK(*static_cast<unsigned char*>(other.get()) == 0xff);
}

TEST_CASE("host work that a recorded step would repeat is refused") {
  DefaultDevice device;
  const std::string end = "; use model.train_step";
  models::GptConfig config = without_dropout();
  {
    SingleDevice<models::Gpt> model(device, config,
                                    ModelOptions{.pipeline = {.timeline = std::make_shared<schedule::TimelineRecorder>()}});
    CHECK(refusal([&] { gpu::GraphedStep step(model); }) ==
          "weft: GraphedStep: a step that is recorded as a whole has no actions to time (ModelOptions::pipeline.timeline)" + end);
  }
  {
    SingleDevice<Silent> model(device, {.layers = 1, .width = 16, .heads = 2, .intermediate = 8, .experts = 4});
    CHECK(refusal([&] { gpu::GraphedStep step(model); }) ==
          "weft: GraphedStep: a layer keeps numbers of each step on the host (make_step_buffer), as routers of experts do, and a "
          "recorded step has none" +
              end);
  }
  {
    SingleDevice<models::Gpt> model(device, config, ModelOptions{.numerics = {.reproducible = true}});
    CHECK(refusal([&] { gpu::GraphedStep step(model); }) ==
          "weft: GraphedStep: a reproducible run (ModelOptions::numerics.reproducible) accumulates micro-batches under the "
          "host's control" +
              end);
  }
  config.dropout = 0.1;
  SingleDevice<models::Gpt> model(device, config);
  CHECK(refusal([&] { gpu::GraphedStep step(model); }) ==
        "weft: GraphedStep: the layer transformer.drop draws other random numbers in each step (Dropout, Noise), and a recorded "
        "step would repeat its own" +
            end);
}
TEST_CASE("layers of a model that draw random numbers are refused") {
  DefaultDevice device;
  const std::string expected = "the layer inside.draw draws other random numbers in each step";
  SingleDevice<Drawing<DropsOut>> dropping(device, {});
  CHECK(refusal([&] { gpu::GraphedStep step(dropping); }).find(expected) != std::string::npos);
  SingleDevice<Drawing<Noisy>> noisy(device, {});
  CHECK(refusal([&] { gpu::GraphedStep step(noisy); }).find(expected) != std::string::npos);
  SingleDevice<Drawing<Calm>> plain(device, {});
  CHECK(refusal([&] { gpu::GraphedStep step(plain); }) == "");
}
