// SPDX-License-Identifier: Apache-2.0
// L-BFGS: the iterates of torch.optim.LBFGS, one rank's in every layout, values that are not finite, refused models.
// covers: weft/optim/lbfgs.hpp weft/optim/line_search.hpp

#include <limits>
#include <optional>
#include <stdexcept>

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

/// The loss and gradients by train_step, or by a custom training loop.
template <class Model>
double evaluated(Model& model, const Batch& batch, [[maybe_unused]] bool own_loop) {
  if constexpr (!Model::uses(pp{}))
    if (own_loop) {
      auto loss = model.loss(batch);
      loss.backward();
      return loss.value();
    }
  return model.train_step(batch);
}

template <class Model>
std::vector<double> trained(Model& model, bool wolfe, std::size_t rank, std::size_t ranks, std::size_t micro_batches,
                            bool own_loop = false) {
  optim::Lbfgs optimizer(
      model, {.learning_rate = wolfe ? 1.0 : 0.1, .iterations = 5, .evaluations = 30, .history = 3, .strong_wolfe = wolfe});
  std::vector<double> numbers;
  for (int step = 0; step < 4; ++step) {
    Batch batch = make_batch(std::uint64_t(step / 2), rank, ranks, micro_batches);
    batch.step = std::uint64_t(step / 2);  // the same for all evaluations on the batch
    numbers.push_back(optimizer.step([&] { return evaluated(model, batch, own_loop); }));
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

TEST_CASE("a custom training loop takes the steps of train_step") {
  using Dense = DataParallel<TensorParallel<Gpt>>;
  for (const Degrees& degrees : {Degrees{}, Degrees{.tp = 2}})
    for (const bool wolfe : {false, true})
      CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
              Mesh<dp, tp> mesh(world, degrees);
              Dense model(mesh, config), other(mesh, config);
              const auto data = mesh.comm(dp{});
              const std::size_t rank = std::size_t(data.rank()), ranks = std::size_t(data.size());
              const std::vector<double> expected = trained(model, wolfe, rank, ranks, 1);
              const std::vector<double> seen = trained(other, wolfe, rank, ranks, 1, true);
              CHECK(seen.size() == expected.size());
              double worst = 0;
              for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(seen[i] - expected[i]));
              CHECK(worst < 1e-9);
            }) == 0);
}

TEST_CASE("a closure without new gradients is refused") {
  DefaultDevice device;
  SingleDevice<Gpt> model(device, config);
  const Batch batch = make_batch(0, 0, 1, 1);
  optim::Lbfgs optimizer(model, {.iterations = 2});
  CHECK(message<UsageError>([&] {
          optimizer.step([&] { return model.evaluate(batch); });
        }).starts_with("weft: optimizer step before any train_step"));
  optimizer.step([&] { return model.train_step(batch); });
  CHECK(message<UsageError>([&] {
          optimizer.step([&] { return model.evaluate(batch); });
        }).starts_with("weft: optimizer step without a gradient since the last one"));
  CHECK(message<UsageError>([&] {
          optimizer.step([&] { return model.loss(batch).value(); });
        }).starts_with("weft: optimizer step without a gradient since the last one: a custom training loop called"));
}

TEST_CASE("after freeze and unfreeze the history begins anew, on ranks without these parameters too") {
  const auto parameters = [](auto& model, const Batch& batch, bool keep) {
    using Model = std::remove_cvref_t<decltype(model)>;
    const optim::LbfgsOptions options{.learning_rate = 0.1, .iterations = 5};
    std::optional<optim::Lbfgs<Model>> optimizer(std::in_place, model, options);
    const auto step = [&] {
      if (!keep) {
        optimizer.reset();
        optimizer.emplace(model, options);
      }
      optimizer->step([&] { return model.train_step(batch); });
    };
    const std::string name = model.parameter_names().front();
    step();
    model.freeze(name);
    const std::vector<double> frozen = model.parameter(name);
    step();
    CHECK(model.parameter(name) == frozen);
    model.unfreeze(name);
    step();
    CHECK(model.parameter(name) != frozen);
    std::vector<double> all;
    for (const std::string& each : model.parameter_names())
      for (const double value : model.parameter(each)) all.push_back(value);
    return all;
  };
  DefaultDevice device;
  SingleDevice<Gpt> kept(device, config), renewed(device, config);
  const std::vector<double> expected = parameters(kept, make_batch(0, 0, 1, 1), true);
  CHECK(expected == parameters(renewed, make_batch(0, 0, 1, 1), false));
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world, {.pp = 2});
          Composition model(mesh, config, {.shard = {.stage = 0}});
          const std::vector<double> seen = parameters(model, make_batch(0, 0, 1, 2), true);
          double worst = 0;
          for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(seen[i] - expected[i]));
          CHECK(worst < 1e-6);
        }) == 0);
}

TEST_CASE("beside another optimizer of the model") {
  DefaultDevice device;
  SingleDevice<Gpt> model(device, config);
  const Batch batch = make_batch(0, 0, 1, 1);
  const std::string first = model.parameter_names().front(), last = model.parameter_names().back();
  {
    optim::Lbfgs one(model);
    CHECK(message<UsageError>([&] { optim::AdamW other(model); }).starts_with("weft: a second optimizer of "));
  }
  model.freeze("*");
  model.unfreeze(first);
  optim::AdamW adam(model);
  model.unfreeze(last);
  CHECK(message<UsageError>([&] { optim::Lbfgs other(model); }).starts_with("weft: a second optimizer of " + first));
  model.freeze(first);
  optim::Lbfgs optimizer(model, {.iterations = 3});
  model.unfreeze(first);
  const auto theirs = model.parameter(first), mine = model.parameter(last);
  const double loss = optimizer.step([&] { return model.train_step(batch); });
  CHECK(model.parameter(first) == theirs);
  CHECK(model.parameter(last) != mine);
  CHECK(model.train_step(batch) < loss);
  adam.step();
  CHECK(model.parameter(first) != theirs);
}

TEST_CASE("a loss or gradient that is not finite ends a step where both were last finite") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool of_loss : {true, false})
    for (const double wrong : {std::nan(""), infinity, -infinity})
      for (const int bad : {1, 2, 3})
        for (const bool wolfe : {false, true}) {
          INFO("wrong " << (of_loss ? "loss " : "gradient ") << wrong << " from call " << bad << ", wolfe " << wolfe);
          TwoParameters<double> model;
          const auto values = [&] {
            std::vector<double> all;
            for (const ParameterState& state : model.states)
              all.insert(all.end(), model.value(state), model.value(state) + state.size());
            return all;
          };
          std::vector<double> finite = values();
          int calls = 0;
          optim::Lbfgs optimizer(model, {.learning_rate = 1e-3, .iterations = 4, .strong_wolfe = wolfe});
          const double first = optimizer.step([&] {
            double loss = chain(model);
            if (++calls < bad && (calls == 1 || !wolfe)) finite = values();
            if (calls < bad) return loss;
            return of_loss ? wrong : (model.gradient(model.states[0])[3] = wrong, loss);
          });
          CHECK(std::isfinite(first) == (bad > 1));
          if (!wolfe) CHECK(calls == bad);
          if (!wolfe || bad < 3) CHECK(values() == finite);
          for (const double value : values()) CHECK(std::isfinite(value));
        }
}

TEST_CASE("a closure that throws leaves the parameters and the history as they were") {
  const auto run = [](int step_that_throws, int call_that_throws, bool wolfe) {
    TwoParameters<double> model;
    const auto values = [&] {
      std::vector<double> all;
      for (const ParameterState& state : model.states)
        all.insert(all.end(), model.value(state), model.value(state) + state.size());
      return all;
    };
    // Two pairs: the step that throws drops one of them.
    optim::Lbfgs optimizer(model, {.learning_rate = 1e-3, .iterations = 4, .history = 2, .strong_wolfe = wolfe});
    for (int step = 0; step < 3; ++step) {
      if (step == step_that_throws) {
        const std::vector<double> before = values();
        const std::size_t directions = optimizer.directions();
        int calls = 0;
        CHECK_THROWS_AS(optimizer.step([&] {
          const double loss = chain(model);
          if (++calls == call_that_throws) throw std::runtime_error("of the closure");
          return loss;
        }),
                        std::runtime_error);
        CHECK(calls == call_that_throws);
        CHECK(values() == before);
        CHECK(optimizer.directions() == directions);
      }
      optimizer.step([&] { return chain(model); });
    }
    return values();
  };
  for (const bool wolfe : {false, true}) {
    const std::vector<double> undisturbed = run(-1, 0, wolfe);
    for (const int step : {0, 1, 2})
      for (const int call : {1, 2, 4}) {
        INFO("step " << step << ", call " << call << ", wolfe " << wolfe);
        CHECK(run(step, call, wolfe) == undisturbed);
      }
  }
}

TEST_CASE("a closure that throws on all ranks, before or after train_step, leaves the step to be taken again") {
  const auto run = [](World& world, bool throws, bool after) {
    Mesh<dp, tp> mesh(world, {.tp = 2});
    DataParallel<TensorParallel<Gpt>> model(mesh, config);
    optim::Lbfgs optimizer(model, {.learning_rate = 0.1, .iterations = 4, .history = 2});
    const auto data = mesh.comm(dp{});
    for (std::uint64_t step = 0; step < 2; ++step) {
      const Batch batch = make_batch(step, std::size_t(data.rank()), std::size_t(data.size()), 1);
      int calls = 0;
      if (throws)
        CHECK_THROWS_AS(optimizer.step([&] {
          const bool now = ++calls == 3;
          if (now && !after) throw std::runtime_error("of the closure");
          const double loss = model.train_step(batch);
          if (now) throw std::runtime_error("of the closure");
          return loss;
        }),
                        std::runtime_error);
      optimizer.step([&] { return model.train_step(batch); });
    }
    std::vector<double> all;
    for (const std::string& name : model.parameter_names())
      for (const double value : model.parameter(name)) all.push_back(value);
    return all;
  };
  CHECK(runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
          const std::vector<double> undisturbed = run(world, false, false);
          for (const bool after : {false, true}) CHECK(run(world, true, after) == undisturbed);
        }) == 0);
}

TEST_CASE("a search meets a gradient that is not finite once, and lowers the loss") {
  TwoParameters<double> model;
  int calls = 0;
  optim::Lbfgs optimizer(model, {.iterations = 10, .strong_wolfe = true});
  const auto closure = [&] {
    const double loss = chain(model);
    if (++calls == 2) model.gradient(model.states[1])[0] = std::nan("");
    return loss;
  };
  const double first = optimizer.step(closure);
  CHECK(chain(model) < 0.5 * first);
}

TEST_CASE("a search beside a barrier, where the loss is infinite") {
  using Point = optim::detail::LinePoint<int>;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double slope : {infinity, 0.0, std::nan("")})
    for (const double length : {1.0, 4.0, 0.01}) {
      INFO("slope " << slope << ", length " << length);
      const auto at = [&](double t) {  // the minimum is at 0.8
        CHECK(std::isfinite(t));
        return t < 1 ? Point{t, -std::log(1 - t) - 5 * t, 1 / (1 - t) - 5, 0} : Point{t, infinity, slope, 0};
      };
      const Point found = optim::detail::strong_wolfe<int>(at(0), length, 1, 1e-9, at);
      CHECK(found.loss < -0.5);
      CHECK(std::abs(found.slope) <= 0.9 * 4);
    }
}

TEST_CASE("refused models and options") {
  TwoParameters<double> model;
  CHECK(message<UsageError>([&] { optim::Lbfgs(model, {.history = 0}); }) ==
        "weft: L-BFGS: iterations(20) and history(0) must be at least 1");
  DefaultDevice device;
  SingleDevice<Gpt> scaled(device, config, {.numerics = {.loss_scale = LossScaleOptions{.initial = 1024}}});
  CHECK(message<UsageError>([&] {
          optim::Lbfgs optimizer(scaled);
        }).starts_with("weft: L-BFGS: ModelOptions::numerics.loss_scale multiplies the gradients"));
  CHECK(runtime::run(runtime::RunOptions{.ranks = 2}, [&](World& world) {
          Mesh<dp, tp, pp> mesh(world);
          Composition sharded(mesh, config, {.shard = {.stage = 1}});
          const std::string refused = message<UsageError>([&] { optim::Lbfgs optimizer(sharded); });
          CHECK(refused.find("is sharded over data ranks or offloaded: use ModelOptions::shard.stage 0") != refused.npos);
        }) == 0);
}
