// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/model_call.hpp weft/pipeline/own_loop.hpp
// Users' own training loops: a generator with a discriminator, and a student with a teacher, each equal to one rank over dp, tp
// and every stage of ZeRO; and the refused calls.

#include <weft/pipeline/model_call.hpp>
#include <weft/pipeline/own_loop.hpp>

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

namespace {

inline constexpr data::Field<"ones", float> ones_field;
using Samples = FieldBatch<input_field, other_field, ones_field>;

struct NetConfig {
  std::size_t in = 6, out = 6;
  double deviation = 0.5;
};
template <char name>
struct Net : Module<Net<name>> {
  using scalar = double;
  using Config = NetConfig;
  using Batch = Samples;
  TwoLayers layers;
  Net(const auto& context, const Config& config) : layers(context / std::string(1, name), config.in, 8, config.out) {}
  auto forward(const auto& x) const { return to<Invariant<tp>>(layers(x)); }
};

Samples make_samples(std::uint64_t step, std::size_t rank, std::size_t ranks) {
  auto batch = share_of_samples<Samples>(step, rank, ranks, 1);
  fill_field(batch, input_field, 1, {6});
  fill_field(batch, other_field, 2, {6});
  for (float& one : batch[ones_field].resize(batch.samples, {1})) one = 1;
  return batch;
}

/// Half the squared distance of two values, by sample.
const auto distance = [](const auto& x, const auto& y) {
  return sum_losses(HalfSquares()(to<Invariant<tp>>(x) - to<Invariant<tp>>(y)));
};
const auto half_squares = [](const auto& x) { return sum_losses(HalfSquares()(x)); };

void append(std::vector<double>& all, const std::vector<double>& more) { all.insert(all.end(), more.begin(), more.end()); }
template <class M>
void append_parameters(std::vector<double>& all, M& model) {
  for (const std::string& name : model.parameter_names()) append(all, model.parameter(name));
}

/// A generator and a discriminator with two optimizers in one step, by least squares (Mao et al., arXiv:1611.04076).
template <class G, class D>
std::vector<double> adversarial(G& generator, D& critic, std::size_t rank, std::size_t ranks) {
  optim::Sgd of_generator(generator, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0}),
      of_critic(critic, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  std::vector<double> seen;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Samples batch = make_samples(step, rank, ranks);
    const auto fields = critic.inputs(batch);
    auto fake = generator.forward(batch);  // of the first field, the noise

    auto real_score = critic.forward(batch, fields[other_field]);
    auto fake_score = critic.forward(batch, fake.output());
    auto real_loss = critic.loss(batch, distance, real_score.output(), fields[ones_field]);
    auto fake_loss = critic.loss(batch, half_squares, fake_score.output());
    fake_score.backward(fake_loss.backward());  // not in the order of the forwards
    real_score.backward(std::get<0>(real_loss.backward()));
    for (const std::string& name : critic.parameter_names()) append(seen, critic.gradient(name));
    seen.push_back(of_critic.step().gradient_norm);

    auto score = critic.forward(batch, fake.output());  // with the new critic
    auto loss = critic.loss(batch, distance, score.output(), fields[ones_field]);
    fake.backward(score.backward(std::get<0>(loss.backward())));
    critic.discard_gradients();
    seen.push_back(of_generator.step().gradient_norm);
    append(seen, {real_loss.value(), fake_loss.value(), loss.value()});
  }
  append_parameters(seen, generator);
  append_parameters(seen, critic);
  return seen;
}

/// A student learns from a teacher and from targets: two losses, one of them weighted, and a teacher that is not trained.
template <class T, class S>
std::vector<double> distil(T& teacher, S& student, std::size_t rank, std::size_t ranks) {
  optim::AdamW optimizer(student, {.learning_rate = 1e-2, .clip = 1.0});
  std::vector<double> seen;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Samples batch = make_samples(step, rank, ranks);
    const auto fields = student.inputs(batch);
    const auto said = teacher.forward(batch);
    auto call = student.forward(batch);
    auto soft = student.loss(batch, distance, call.output(), said.output());
    auto hard = student.loss(batch, distance, call.output(), fields[other_field]);
    call.backward(add(std::get<0>(soft.backward(0.7)), std::get<0>(hard.backward(0.3))));
    teacher.discard_gradients();
    for (const std::string& name : student.parameter_names()) append(seen, student.gradient(name));
    seen.push_back(optimizer.step().gradient_norm);
    append(seen, {soft.value(), hard.value()});
  }
  append_parameters(seen, student);
  return seen;
}

template <class M>
using Layout = FullyShardedDataParallel<TensorParallel<M>>;
const std::vector<MatrixEntry> layouts = {
    {1, {}},           {2, {}, 1, "", 0},        {2, {}, 1, "", 1},        {2, {}, 1, "", 2},
    {2, {}, 1, "", 3}, {4, {}, 1, "", 3},        {2, {.tp = 2}, 1},        {4, {.tp = 4}, 1},
    {4, {.tp = 2}, 1}, {4, {.tp = 2}, 1, "", 2}, {4, {.tp = 2}, 1, "", 3}, {8, {.tp = 2}, 1, "", 3},
};

/// The loop in each layout against one rank.
template <class First, class Second>
void check_loop(const NetConfig& first, const NetConfig& second, const auto& loop) {
  DefaultDevice device;
  SingleDevice<First> one(device, first);
  SingleDevice<Second> other(device, second);
  const std::vector<double> expected = loop(one, other, std::size_t(0), std::size_t(1));
  double scale = 0;
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  REQUIRE(scale > 0);
  for (const MatrixEntry& entry : layouts) {
    INFO("world " << entry.world << ", tp(" << entry.degrees.tp << "), ZeRO " << entry.zero);
    std::mutex mutex;
    double largest = 0;
    CHECK(runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
            Mesh<dp, tp> mesh(world, entry.degrees);
            ModelOptions options;
            options.shard.stage = entry.zero;
            Layout<First> a(mesh, first, options);
            Layout<Second> b(mesh, second, options);
            const std::vector<double> seen = loop(a, b, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})));
            std::lock_guard lock(mutex);
            REQUIRE(seen.size() == expected.size());
            for (std::size_t i = 0; i < seen.size(); ++i) {
              CHECK(std::isfinite(seen[i]));
              largest = std::max(largest, std::abs(seen[i] - expected[i]) / scale);
            }
          }) == 0);
    CHECK(largest <= 1e-12);
  }
}

}  // namespace

TEST_CASE("a generator and a discriminator: every layout equals one rank") {
  check_loop<Net<'g'>, Net<'d'>>({}, {.out = 1}, [](auto& generator, auto& critic, std::size_t rank, std::size_t ranks) {
    return adversarial(generator, critic, rank, ranks);
  });
}
TEST_CASE("a teacher and a student: every layout equals one rank") {
  check_loop<Net<'t'>, Net<'s'>>({}, {}, [](auto& teacher, auto& student, std::size_t rank, std::size_t ranks) {
    return distil(teacher, student, rank, ranks);
  });
}

TEST_CASE("a custom training loop gives the gradients of train_step, also in a reproducible run") {
  for (const bool reproducible : {false, true}) {
    const MlpConfig config;
    const auto batch = MlpModule::make_batch(config, 1, 0, 1, 1);
    DefaultDevice device;
    SingleDevice<MlpModule> model(device, config, ModelOptions{.numerics = {.reproducible = reproducible}});
    model.train_step(batch);
    std::vector<double> expected, seen;
    for (const std::string& name : model.parameter_names()) append(expected, model.gradient(name));
    const auto fields = model.inputs(batch);
    auto call = model.forward(batch);
    auto loss = model.loss(batch, distance, call.output(), fields[wanted_field]);
    call.backward(std::get<0>(loss.backward()));
    for (const std::string& name : model.parameter_names()) append(seen, model.gradient(name));
    REQUIRE(seen.size() == expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == doctest::Approx(expected[i]).epsilon(1e-14));
  }
}

TEST_CASE("calls that a custom training loop does not support are refused") {
  DefaultDevice device;
  const MlpConfig config;
  SingleDevice<MlpModule> model(device, config);
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  auto batch = MlpModule::make_batch(config, 0, 0, 1, 1);
  auto call = model.forward(batch);
  CHECK_THROWS_WITH_AS(
      model.evaluate(batch),
      "weft: evaluate between a forward of a custom training loop and the optimizer's step: call it before forward or "
      "after the step, or model.discard_gradients() first",
      UsageError);
  const auto gradient = call.output();
  call.backward(gradient);
  CHECK_THROWS_WITH_AS(
      call.backward(gradient),
      "weft: backward of one forward twice: its saved values are gone; call forward again, or add up the gradients of "
      "its output first",
      UsageError);
  CHECK_THROWS_AS(model.train_step(batch), UsageError);
  optimizer.step();
  ++batch.step;
  model.evaluate(batch);
  model.train_step(batch);
  CHECK_THROWS_WITH_AS(model.forward(batch),
                       "weft: forward of a custom training loop after a train_step without an optimizer's step between them: the "
                       "gradients of train_step would be lost; call the optimizer's step, or model.discard_gradients()",
                       UsageError);
  optimizer.step();
  ++batch.step;
  batch.micro_batches = 2;
  CHECK_THROWS_WITH_AS(
      model.forward(batch),
      "weft: model.forward of a batch of 2 micro-batches: a call takes one of them, model.forward(batch, MicroBatchIndex{0}) and "
      "so on, and their gradients add up until the optimizer's step; or set micro_batches to 1",
      UsageError);
}
