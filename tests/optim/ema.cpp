// SPDX-License-Identifier: Apache-2.0
// The exponential moving average of the parameters as a plain loop has it, for every optimizer, in stages of ZeRO and in 16 bits;
// UseEma, which gives and takes back; averages in checkpoints and exports. The step decay of the learning rate.
// covers: weft/optim/ema.hpp weft/optim/step_decay.hpp

#include "support/parity.hpp"
#include "support/temporary_folder.hpp"

#include <weft/checkpoint/load.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/hugging_face/hugging_face.hpp>
#include <weft/optim/ema.hpp>
#include <weft/optim/lamb.hpp>
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
      optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .ema_decay = 0.75});
      const Weights first = weights_of(model);
      { const optim::UseEma averages(model, optimizer); }  // before the first step there is none
      CHECK(distance(weights_of(model), first) == 0);
      const Weights last = train(mesh, model, optimizer, 4).back();
      CHECK(distance(last, steps.back()) < 1e-14);
      const auto evaluate = [&] {
        const auto data = mesh.comm(dp{});
        return model.evaluate(make_batch(9, std::size_t(data.rank()), std::size_t(data.size()), 1));
      };
      const double loss = evaluate();
      {
        const optim::UseEma averages(model, optimizer);
        CHECK(distance(weights_of(model), expected) < 1e-14);
        CHECK(std::abs(evaluate() - loss) > 1e-6);
      }
      CHECK(distance(weights_of(model), last) == 0);
      CHECK(evaluate() == loss);
    }
  });
  CHECK(code == 0);
}

TEST_CASE("Muon's matrices, LAMB and AdamW have averages, which a checkpoint takes into another layout") {
  const TemporaryFolder folder;
  const auto train_and_load = [&]<class Optimizer>(std::type_identity<Optimizer>, const std::string& path) {
    std::vector<Weights> steps;
    Weights loaded;
    CHECK(run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, {.dp = 2});
            Model model(mesh, config, {.shard = {.stage = 2}});
            Optimizer optimizer(model, {.learning_rate = 0.05, .ema_decay = 0.5});
            const auto mine = train(mesh, model, optimizer, 3);
            if (world.rank() == 0) steps = mine;
            checkpoint::save(path, model, optimizer, 3);
          }) == 0);
    CHECK(run<comm::Threads>(RunOptions{.ranks = 4, .threads_per_rank = 1}, [&](World& world) {
            Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});
            Model model(mesh, config);
            Optimizer optimizer(model, {.learning_rate = 0.05, .ema_decay = 0.5});
            checkpoint::load(path, model, optimizer);
            const optim::UseEma averages(model, optimizer);
            const Weights mine = weights_of(model);
            if (world.rank() == 0) loaded = mine;
          }) == 0);
    Weights expected = steps[0];
    for (std::size_t step = 1; step < steps.size(); ++step)
      for (auto& [name, values] : expected)
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = (values[i] + steps[step].at(name)[i]) / 2;
    CHECK(distance(expected, steps.back()) > 1e-3);
    CHECK(distance(loaded, expected) < 1e-14);
  };
  train_and_load(std::type_identity<optim::Muon>(), (folder.path / "muon").string());
  train_and_load(std::type_identity<optim::Lamb>(), (folder.path / "lamb").string());
  train_and_load(std::type_identity<optim::AdamW>(), (folder.path / "adamw").string());
}

TEST_CASE("an export inside the block of a UseEma writes the averages") {
  const TemporaryFolder folder;
  Weights averages, exported;
  CHECK(run<comm::Threads>(RunOptions{.ranks = 4, .threads_per_rank = 1}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.tp = 2});
          Model model(mesh, config, {.shard = {.stage = 3}});
          optim::AdamW optimizer(model, {.learning_rate = 0.05, .ema_decay = 0.5});
          const Weights last = train(mesh, model, optimizer, 3).back();
          const optim::UseEma use(model, optimizer);
          hugging_face::save(folder.path.string(), model);
          const Weights mine = weights_of(model);
          CHECK(distance(mine, last) > 1e-3);
          if (world.rank() == 0) averages = mine;
        }) == 0);
  CHECK(run<comm::Threads>(RunOptions{.ranks = 1, .threads_per_rank = 1}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world);
          Model model(mesh, config);
          hugging_face::load(folder.path.string(), model);
          exported = weights_of(model);
        }) == 0);
  CHECK(distance(exported, averages) == 0);
}

TEST_CASE("in bfloat16 the averages are those of the master copies, and the parameters come back bitwise") {
  using Narrow = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<bfloat16>>>>;
  std::map<int, Weights> of_stage;
  CHECK(run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.dp = 2});
          for (const int stage : {0, 1, 2, 3}) {
            Narrow model(mesh, config, {.shard = {.stage = stage}});
            optim::AdamW optimizer(model, {.learning_rate = 0.01, .ema_decay = 0.75});
            const auto all = [&] {
              Weights weights;
              for (const std::string& name : model.parameter_names()) weights[name] = model.parameter(name);
              return weights;
            };
            const auto data = mesh.comm(dp{});
            std::vector<Weights> steps;
            for (int step = 0; step < 3; ++step) {
              model.train_step(make_batch(step, std::size_t(data.rank()), std::size_t(data.size()), 1));
              optimizer.step();
              steps.push_back(all());
            }
            const Weights& last = steps.back();
            {
              const optim::UseEma averages(model, optimizer);
              const Weights mean = all();
              if (world.rank() == 0) of_stage[stage] = mean;
              CHECK(distance(mean, last) > 1e-3);
              Weights expected = steps[0];
              for (int step = 1; step < 3; ++step)
                for (auto& [name, values] : expected)
                  for (std::size_t i = 0; i < values.size(); ++i)
                    values[i] += 0.25 * (steps[std::size_t(step)].at(name)[i] - values[i]);
              // A value is its master copy within half a last place of 8 bits.
              for (const auto& [name, values] : expected)
                for (std::size_t i = 0; i < values.size(); ++i)
                  CHECK(std::abs(mean.at(name)[i] - values[i]) <= std::abs(values[i]) / 128 + 1e-4);
            }
            CHECK(distance(all(), last) == 0);
          }
        }) == 0);
  for (const int stage : {1, 2, 3}) CHECK(distance(of_stage[stage], of_stage[0]) < 0.02);
}

TEST_CASE("an optimizer without averages, and offloaded ones, are refused") {
  CHECK(run<comm::Threads>(RunOptions{.ranks = 1, .threads_per_rank = 1}, [](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.dp = 1});
          Model model(mesh, config);
          CHECK_THROWS_WITH_AS(optim::Sgd(model, {.ema_decay = 1}),
                               "weft: ema_decay 1.000000 is not a number of at least 0 and below 1", UsageError);
          optim::Sgd optimizer(model);
          CHECK_THROWS_WITH_AS(optim::UseEma(model, optimizer),
                               "weft: this optimizer keeps no averages of the parameters: give it .ema_decay, such as 0.999",
                               UsageError);
          Model offloaded(mesh, config, {.shard = {.offload = Offload::host()}});
          CHECK_THROWS_WITH_AS(
              optim::Sgd(offloaded, {.ema_decay = 0.9}),
              "weft: ema_decay: the optimizer's state is offloaded (ModelOptions::shard.offload), and averages are "
              "used on the device: leave one of the two out",
              UsageError);
        }) == 0);
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
