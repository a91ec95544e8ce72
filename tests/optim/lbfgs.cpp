// SPDX-License-Identifier: Apache-2.0
// L-BFGS: the iterates of torch.optim.LBFGS, one rank's in every layout, refused models.
// covers: weft/optim/lbfgs.hpp weft/optim/line_search.hpp

#include <weft/optim/lbfgs.hpp>
#include <weft/optim/line_search.hpp>

#include "optim/support/two_parameters.hpp"
#include "support/message.hpp"
#include "support/parity.hpp"

using namespace weft_test;

namespace {

/// A chain of Rosenbrock's functions of both parameters, and its gradient.
double chain(TwoParameters<double>& model) {
  std::vector<double> x, g(46, 0.0);
  for (const ParameterState& state : model.states) x.insert(x.end(), model.value(state), model.value(state) + state.size());
  double loss = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double bend = x[i + 1] - x[i] * x[i], rest = 1 - x[i];
    loss += 10 * bend * bend + rest * rest;
    g[i] += -40 * bend * x[i] - 2 * rest;
    g[i + 1] += 20 * bend;
  }
  model.set_gradients(1);
  std::size_t at = 0;
  for (const ParameterState& state : model.states)
    for (std::size_t i = 0; i < state.size(); ++i) model.gradient(state)[i] = g[at++];
  return loss;
}

using Gpt = models::BasicGpt<double>;
using Composition = FullyShardedDataParallel<TensorParallel<PipelineParallel<Gpt>>>;
const models::GptConfig config{
    .vocabulary = batch_vocabulary, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .sequence = batch_length};

template <class Model>
std::vector<double> trained(Model& model, bool wolfe, std::size_t rank, std::size_t ranks, std::size_t micro_batches) {
  optim::Lbfgs optimizer(
      model, {.learning_rate = wolfe ? 1.0 : 0.1, .iterations = 5, .evaluations = 30, .history = 3, .strong_wolfe = wolfe});
  std::vector<double> numbers;
  for (int step = 0; step < 4; ++step) {
    const Batch batch = make_batch(std::uint64_t(step / 2), rank, ranks, micro_batches);
    numbers.push_back(optimizer.step([&] { return model.train_step(batch); }));
  }
  CHECK(optimizer.directions() > 12);
  for (const std::string& name : model.parameter_names())
    for (const double value : model.parameter(name)) numbers.push_back(value);
  return numbers;
}

}  // namespace

TEST_CASE("the parameters and losses of torch.optim.LBFGS") {
  struct Case {
    int steps;
    optim::LbfgsOptions options;
    std::vector<double> losses, parameters;  // tests/golden/make_optimizers.py: the first and last loss, every ninth parameter
  };
  const Case cases[] = {{20,
                         {.learning_rate = 0.1, .iterations = 1, .history = 5},
                         {451.3624833738933, 76.41711351863553},
                         {0.8082504756421285, -0.09206408335805163, 0.5164547069986718, 0.21127093620529364, -0.07049260391452979,
                          -0.03193568778967643}},
                        {2,
                         {.learning_rate = 0.05, .iterations = 10, .history = 3},
                         {451.3624833738933, 264.27333710895687},
                         {0.8248105805796487, -0.26266718577234766, 0.5894362688123147, 0.23806211747110545, -0.20772948176594397,
                          0.0015792453633780644}},
                        {2,
                         {.iterations = 10, .evaluations = 40, .history = 5, .strong_wolfe = true},
                         {451.3624833738933, 35.688323287425476},
                         {0.9849424342290601, 0.3645683944368191, 0.1521786480663952, 0.14302292383397938, 0.15726980823139067,
                          0.023560174546320978}},
                        {1,
                         {.learning_rate = 30, .evaluations = 100, .strong_wolfe = true},
                         {451.3624833738933, 451.3624833738933},
                         {0.9853115536364908, 0.957605148712582, 1.0033463510082252, 1.0127268379658352, 0.44073023018826213,
                          0.06202969794288231}}};
  for (const Case& of : cases) {
    TwoParameters<double> model;
    for (std::size_t i = 0; i < 35; ++i) model.value(model.states[0])[i] = std::sin(1.0 + double(i));
    for (std::size_t i = 0; i < 11; ++i) model.value(model.states[1])[i] = std::cos(1.0 + double(i));
    optim::Lbfgs optimizer(model, of.options);
    std::vector<double> losses;
    for (int step = 0; step < of.steps; ++step) losses.push_back(optimizer.step([&] { return chain(model); }));
    CHECK(std::abs(losses.front() - of.losses[0]) < 1e-8);
    CHECK(std::abs(losses.back() - of.losses[1]) < 1e-6);
    for (std::size_t i = 0; i < of.parameters.size(); ++i) {
      const std::size_t at = 9 * i;
      const double value = at < 35 ? model.value(model.states[0])[at] : model.value(model.states[1])[at - 35];
      CHECK(std::abs(value - of.parameters[i]) < 1e-6);
    }
  }
}

TEST_CASE("every layout takes the steps of one rank") {
  struct Layout {
    std::size_t world;
    Degrees degrees;
    std::size_t micro_batches;
  };
  for (const bool wolfe : {false, true}) {
    DefaultDevice device;
    SingleDevice<Gpt> alone(device, config);
    const std::vector<double> expected = trained(alone, wolfe, 0, 1, 1);
    CHECK(expected[1] < expected[0]);  // on the same batch
    for (const Layout& layout : {Layout{2, {}, 2}, Layout{4, {}, 1}, Layout{2, {.tp = 2}, 2}, Layout{4, {.tp = 4}, 1},
                                 Layout{2, {.pp = 2}, 4}, Layout{8, {.tp = 2, .pp = 2}, 2}}) {
      INFO("world " << layout.world << ", tp " << layout.degrees.tp << ", pp " << layout.degrees.pp << ", wolfe " << wolfe);
      std::vector<double> seen;
      CHECK(runtime::run(runtime::RunOptions{.ranks = int(layout.world)}, [&](World& world) {
              Mesh<dp, tp, pp> mesh(world, layout.degrees);
              Composition model(mesh, config, {.shard = {.stage = 0}});
              const auto data = mesh.comm(dp{});
              const std::vector<double> mine =
                  trained(model, wolfe, std::size_t(data.rank()), std::size_t(data.size()), layout.micro_batches);
              if (world.rank() == 0) seen = mine;
            }) == 0);
      CHECK(seen.size() == expected.size());
      double worst = 0;
      for (std::size_t i = 0; i < std::min(seen.size(), expected.size()); ++i)
        worst = std::max(worst, std::abs(seen[i] - expected[i]));
      CHECK(worst < 1e-6);
    }
  }
}

TEST_CASE("a loss that is not finite ends a step where it was last finite") {
  TwoParameters<double> model;
  const double before = model.value(model.states[0])[0];
  int calls = 0;
  optim::Lbfgs optimizer(model, {.learning_rate = 1});
  optimizer.step([&] {
    const double loss = chain(model);
    return ++calls > 1 ? std::nan("") : loss;
  });
  CHECK(calls == 2);
  CHECK(model.value(model.states[0])[0] == before);
}

TEST_CASE("refused models and options") {
  TwoParameters<double> model;
  CHECK(message<UsageError>([&] { optim::Lbfgs(model, {.history = 0}); }) ==
        "weft: L-BFGS: iterations(20) and history(0) must be at least 1");
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world);
          Composition sharded(mesh, config, {.shard = {.stage = 1}});
          const std::string refused = message<UsageError>([&] { optim::Lbfgs optimizer(sharded); });
          CHECK(refused.find("is sharded over data ranks or offloaded: use ModelOptions::shard.stage 0") != refused.npos);
        }) == 0);
}
