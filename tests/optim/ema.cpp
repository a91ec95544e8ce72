// SPDX-License-Identifier: Apache-2.0
// AveragedSgd: the parameters of Sgd to the bit, their exponential moving average as a plain loop has it, in stages of ZeRO; and
// UseAverage, which gives and takes back. The step decay of the learning rate.
// covers: weft/optim/averaged_sgd.hpp weft/optim/step_decay.hpp

#include "support/parity.hpp"

#include <weft/optim/averaged_sgd.hpp>
#include <weft/optim/step_decay.hpp>

using namespace weft_test;

namespace {

using Weights = std::map<std::string, std::vector<double>>;
using Model = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<double>>>>;

const models::GptConfig config{.vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 4, .sequence = batch_length};

Weights weights_of(Model& model) {
  Weights all;
  for (const std::string& name : model.parameter_names()) all[name] = model.parameter(name);
  return all;
}

double distance(const Weights& a, const Weights& b) {
  double largest = 0;
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - b.at(name)[i]));
  return largest;
}

template <class Optimizer>
std::vector<Weights> train(const auto& mesh, Model& model, Optimizer& optimizer, int steps) {
  std::vector<Weights> all;
  const auto data = mesh.comm(dp{});
  for (int step = 0; step < steps; ++step) {
    model.train_step(make_batch(step, std::size_t(data.rank()), std::size_t(data.size()), 1));
    optimizer.step();
    all.push_back(weights_of(model));
  }
  return all;
}

}  // namespace

TEST_CASE("the average is that of a plain loop, in every stage of ZeRO, and the parameters are those of Sgd") {
  const int code = run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [](World& world) {
    Mesh<dp, tp, pp> mesh(world, {.dp = 2});
    Model plain(mesh, config);
    optim::Sgd sgd(plain, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    const std::vector<Weights> steps = train(mesh, plain, sgd, 4);
    Weights expected = steps[0];  // the first step's parameters
    for (std::size_t step = 1; step < steps.size(); ++step)
      for (auto& [name, values] : expected)
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += (1 - 0.75) * (steps[step].at(name)[i] - values[i]);
    REQUIRE(distance(expected, steps.back()) > 1e-3);  // or a wrong average could not be seen
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage);
      Model model(mesh, config, {.shard = {.stage = stage}});
      optim::AveragedSgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .average_decay = 0.75});
      const Weights first = weights_of(model);
      { const optim::UseAverage average(model, optimizer); }  // before the first step there is none
      CHECK(distance(weights_of(model), first) == 0);
      const Weights last = train(mesh, model, optimizer, 4).back();
      CHECK(distance(last, steps.back()) < 1e-14);
      const auto evaluate = [&] {
        const auto data = mesh.comm(dp{});
        return model.evaluate(make_batch(9, std::size_t(data.rank()), std::size_t(data.size()), 1));
      };
      const double loss = evaluate();
      {
        const optim::UseAverage average(model, optimizer);
        CHECK(distance(weights_of(model), expected) < 1e-14);
        CHECK(std::abs(evaluate() - loss) > 1e-6);
      }
      CHECK(distance(weights_of(model), last) == 0);
      CHECK(evaluate() == loss);
    }
  });
  CHECK(code == 0);
}

TEST_CASE("options that are no decay are refused") {
  const int code = run<comm::Threads>(RunOptions{.ranks = 1, .threads_per_rank = 1}, [](World& world) {
    Mesh<dp, tp, pp> mesh(world, {.dp = 1});
    Model model(mesh, config);
    std::string text;
    try {
      optim::AveragedSgd optimizer(model, {.average_decay = 1});
    } catch (const UsageError& error) {
      text = error.what();
    }
    CHECK(text == "weft: decay of the average 1.000000 is not a number of at least 0 and below 1");
  });
  CHECK(code == 0);
}

TEST_CASE("a step decay after a warm-up") {
  const optim::WarmupStepDecay rate{.peak = 0.8, .factor = 0.5, .warmup = 4, .every = 10};
  CHECK(rate.at(0) == 0.2);
  CHECK(rate.at(3) == 0.8);
  CHECK(rate.at(9) == 0.8);
  CHECK(rate.at(10) == 0.4);
  CHECK(rate.at(29) == 0.2);
  CHECK_THROWS_AS((void)(optim::WarmupStepDecay{.every = 0}.at(0)), UsageError);
  CHECK_THROWS_AS((void)(optim::WarmupStepDecay{.peak = -1}.at(0)), UsageError);
}
