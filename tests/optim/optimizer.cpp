// SPDX-License-Identifier: Apache-2.0
// covers: weft/optim/adam.hpp weft/optim/adamw.hpp weft/optim/lamb.hpp weft/optim/lion.hpp weft/optim/sgd.hpp
// covers: weft/optim/refused_optimizer.hpp weft/optim/slot.hpp weft/optim/step.hpp
// covers: weft/optim/step_agreement.hpp weft/optim/trainable.hpp weft/optim/update_rule.hpp
// AdamW, Adam, SGD, Lion and LAMB compared with PyTorch's and their papers' formulas in double; clipping; master weights; the
// gradient norm in every layout; a gradient that is not finite on any rank stops the step on all of them. Gradients are written
// by hand: no model runs here.

#include <weft/optim/adamw.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include <weft/optim/adam.hpp>
#include <weft/optim/lamb.hpp>
#include <weft/optim/lion.hpp>
#include <weft/optim/optimizer.hpp>
#include <weft/optim/refused_optimizer.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/optim/slot.hpp>
#include <weft/optim/step.hpp>
#include <weft/optim/step_agreement.hpp>
#include <weft/optim/trainable.hpp>
#include <weft/optim/update_rule.hpp>
#include <weft/weft.hpp>

#include "optim/support/two_parameters.hpp"
#include "support/degrees.hpp"
#include "support/figure.hpp"

using namespace weft;
using namespace weft_test;

namespace {

/// The reference keeps a copy of everything in double.
struct Element {
  double p = 0, first = 0, second = 0;
};
using Elements = std::vector<std::vector<Element>>;

template <class S>
Elements elements_of(const TwoParameters<S>& model) {
  Elements elements;
  for (const ParameterState& state : model.states) {
    auto& mine = elements.emplace_back(state.size());
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i].p = double(typename TwoParameters<S>::A(model.value(state)[i]));
  }
  return elements;
}

template <class S>
void check_values(const TwoParameters<S>& model, const Elements& expected, double tolerance) {
  for (std::size_t k = 0; k < expected.size(); ++k)
    for (std::size_t i = 0; i < expected[k].size(); ++i) {
      const double got = double(typename TwoParameters<S>::A(model.value(model.states[k])[i]));
      CHECK(std::abs(got - expected[k][i].p) <= tolerance * (1 + std::abs(expected[k][i].p)));
    }
}

// torch.optim.AdamW, one element.
void adamw(Element& e, double g, const optim::AdamWOptions& o, double rate, double decay, int step) {
  e.p -= rate * decay * e.p;
  e.first = o.beta1 * e.first + (1 - o.beta1) * g;
  e.second = o.beta2 * e.second + (1 - o.beta2) * g * g;
  const double m = e.first / (1 - std::pow(o.beta1, step)), v = e.second / (1 - std::pow(o.beta2, step));
  e.p -= rate * m / (std::sqrt(v) + o.epsilon);
}

}  // namespace

TEST_CASE("AdamW is PyTorch's formula, with clipping, decay and a rate for each step") {
  for (const bool decay_vectors : {true, false})
    for (const double clip : {0.0, 1.0, 1e6}) {
      TwoParameters<double> model;
      const optim::AdamWOptions options{
          .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1, .decay_vectors = decay_vectors, .clip = clip};
      optim::AdamW optimizer(model, options);
      Elements expected = elements_of(model);
      for (int step = 1; step <= 6; ++step) {
        model.set_gradients(std::uint64_t(step));
        const double norm = model.norm(), scale = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1, rate = 0.01 * step;
        for (std::size_t k = 0; k < 2; ++k)
          for (std::size_t i = 0; i < expected[k].size(); ++i)
            adamw(expected[k][i], scale * model.gradient(model.states[k])[i], options, rate, k == 0 || decay_vectors ? 0.1 : 0,
                  step);
        const auto report = optimizer.step(rate);
        CHECK(!report.skipped);
        CHECK(std::abs(report.gradient_norm / norm - 1) <= 1e-14);  // before clipping
        check_values(model, expected, 1e-13);
      }
      CHECK(optimizer.steps() == 6);
    }
}

TEST_CASE("Adam has the parameters of torch.optim.Adam after 100 steps") {
  TwoParameters<double> model;
  optim::Adam optimizer(model, {.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1});
  double* const values = model.value(model.states[0]);
  const double start[] = {0.5, -1.0, 0.25, 2.0};
  for (std::size_t i = 0; i < 4; ++i) values[i] = start[i];
  model.set_gradients(1);
  for (int step = 1; step <= 100; ++step) {
    for (std::size_t i = 0; i < 4; ++i) model.gradient(model.states[0])[i] = std::sin(0.7 * double(i) + 1.3 * step);
    optimizer.step();
  }
  // PyTorch 2.11, torch.optim.Adam(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), with these gradients.
  const double expected[] = {0.4149403522527821, -0.8809722932851183, 0.22239409041213146, 1.7780577949876943};
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(values[i] - expected[i]) < 1e-12);
}

TEST_CASE("Lion is program 2 of its paper, with clipping, decay and a rate for each step") {
  TwoParameters<double> model;
  optim::Lion optimizer(model, {.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .decay_vectors = false, .clip = 1});
  Elements expected = elements_of(model);
  for (int step = 1; step <= 100; ++step) {
    model.set_gradients(std::uint64_t(step));
    if (step == 1) model.gradient(model.states[1])[3] = 0;  // no direction: only decay
    const double scale = std::min(1.0, 1 / (model.norm() + 1e-6)), rate = 1e-3 * step;
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t i = 0; i < expected[k].size(); ++i) {
        Element& e = expected[k][i];
        const double g = scale * model.gradient(model.states[k])[i], update = 0.8 * e.first + (1 - 0.8) * g;
        e.p -= rate * ((update > 0) - (update < 0) + (k == 0 ? 0.1 : 0) * e.p);
        e.first = 0.95 * e.first + (1 - 0.95) * g;
      }
    optimizer.step(rate);
    check_values(model, expected, 1e-13);
  }
}

TEST_CASE("LAMB is algorithm 2 of its paper: the norms of whole parameters, and 1 where a norm is 0") {
  TwoParameters<double> model;
  const optim::LambOptions options{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1, .clip = 2};
  optim::Lamb optimizer(model, options);
  for (std::size_t i = 0; i < model.states[1].size(); ++i) model.value(model.states[1])[i] = 0;
  Elements expected = elements_of(model);
  for (int step = 1; step <= 100; ++step) {
    model.set_gradients(std::uint64_t(step));
    const double scale = std::min(1.0, 2 / (model.norm() + 1e-6)), rate = 0.002 * step;
    for (std::size_t k = 0; k < 2; ++k) {
      std::vector<double> direction;
      double of_direction = 0, of_value = 0;
      for (std::size_t i = 0; i < expected[k].size(); ++i) {
        Element& e = expected[k][i];
        const double g = scale * model.gradient(model.states[k])[i];
        e.first = 0.8 * e.first + (1 - 0.8) * g;
        e.second = 0.95 * e.second + (1 - 0.95) * g * g;
        const double m = e.first / (1 - std::pow(0.8, step)), v = e.second / (1 - std::pow(0.95, step));
        direction.push_back(m / (std::sqrt(v) + 1e-6) + 0.1 * e.p);
        of_direction += direction.back() * direction.back();
        of_value += e.p * e.p;
      }
      const double ratio = of_direction > 0 && of_value > 0 ? std::sqrt(of_value / of_direction) : 1;
      for (std::size_t i = 0; i < expected[k].size(); ++i) expected[k][i].p -= rate * ratio * direction[i];
    }
    optimizer.step(rate);
    check_values(model, expected, 1e-12);
  }
}

TEST_CASE("SGD is PyTorch's formula, with momentum, Nesterov's, and decay") {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      TwoParameters<double> model;
      optim::Sgd optimizer(model,
                           {.learning_rate = 0.1, .momentum = momentum, .weight_decay = 0.01, .nesterov = nesterov, .clip = 2});
      Elements expected = elements_of(model);
      for (int step = 1; step <= 4; ++step) {
        model.set_gradients(std::uint64_t(step));
        const double scale = std::min(1.0, 2 / (model.norm() + 1e-6));
        for (std::size_t k = 0; k < 2; ++k)
          for (std::size_t i = 0; i < expected[k].size(); ++i) {
            Element& e = expected[k][i];
            const double g = scale * model.gradient(model.states[k])[i] + 0.01 * e.p;
            e.first = momentum * e.first + g;
            e.p -= 0.1 * (nesterov ? g + momentum * e.first : e.first);
          }
        optimizer.step();
        check_values(model, expected, 1e-13);
      }
    }
}

TEST_CASE("bfloat16 parameters follow a master copy in float, so steps below their resolution add up") {
  TwoParameters<bfloat16> model;
  const optim::AdamWOptions options{.learning_rate = 1e-4, .weight_decay = 0.1};
  optim::AdamW optimizer(model, options);
  Elements expected = elements_of(model);
  for (int step = 1; step <= 200; ++step) {
    model.set_gradients(1);  // the same direction each time
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t i = 0; i < expected[k].size(); ++i)
        adamw(expected[k][i], model.gradient(model.states[k])[i], options, 1e-4, 0.1, step);
    optimizer.step();
  }
  for (std::size_t k = 0; k < 2; ++k)
    for (std::size_t i = 0; i < expected[k].size(); ++i) {
      const float master = static_cast<const float*>(optimizer.slots()[k].master.get())[i];
      CHECK(std::abs(double(master) - expected[k][i].p) <= 5e-5);
      CHECK(float(model.value(model.states[k])[i]) == float(bfloat16(master)));
    }
}

TEST_CASE("wrong options, and a step without gradients, are refused") {
  TwoParameters<float> model;
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.learning_rate = -1}), "weft: learning rate -1.000000 is not a number of at least 0",
                       UsageError);
  CHECK_THROWS_AS(optim::Sgd(model, {.learning_rate = std::nan("")}), UsageError);
  CHECK_THROWS_WITH_AS(optim::Sgd(model, {.clip = -1}), "weft: clip -1.000000 is negative; 0 turns clipping off", UsageError);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.learning_rate = INFINITY}), "weft: learning rate inf is not a number of at least 0",
                       UsageError);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.beta1 = 1}), "weft: beta1 1.000000 is not a number of at least 0 and below 1",
                       UsageError);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.beta2 = -0.5}), "weft: beta2 -0.500000 is not a number of at least 0 and below 1",
                       UsageError);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.epsilon = std::nan("")}),
                       "weft: epsilon nan is not a number of at least 0 and below 1e+06", UsageError);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.weight_decay = -1}),
                       "weft: weight decay -1.000000 is not a number of at least 0 and below 1e+06", UsageError);
  CHECK_THROWS_WITH_AS(optim::Sgd(model, {.momentum = 1.5}), "weft: momentum 1.500000 is not a number of at least 0 and below 1",
                       UsageError);
  CHECK_THROWS_WITH_AS(optim::AdamW(model, {.weight_decay = 1e30}),
                       "weft: weight decay 1e+30 is not a number of at least 0 and below 1e+06", UsageError);
  optim::AdamW optimizer(model);
  CHECK_THROWS_WITH_AS(optimizer.step(), "weft: optimizer step before any train_step: matrix has no gradient", UsageError);
}

TEST_CASE("every number of every optimizer is refused if it is NaN, infinite or negative, with its name") {
  TwoParameters<float> model;
  const auto refused = [](const std::string& name, auto&& make) {
    for (const double wrong : {std::nan(""), double(INFINITY), -double(INFINITY), -1e-3, 1e300}) {
      INFO(name << " " << wrong);
      std::string text;
      try {
        make(wrong);
      } catch (const UsageError& error) {
        text = error.what();
      }
      CHECK(text.starts_with("weft: " + name + " "));
    }
  };
  refused("learning rate", [&](double x) { optim::AdamW(model, {.learning_rate = x}); });
  refused("beta1", [&](double x) { optim::AdamW(model, {.beta1 = x}); });
  refused("beta2", [&](double x) { optim::AdamW(model, {.beta2 = x}); });
  refused("epsilon", [&](double x) { optim::AdamW(model, {.epsilon = x}); });
  refused("weight decay", [&](double x) { optim::AdamW(model, {.weight_decay = x}); });
  refused("learning rate", [&](double x) { optim::Sgd(model, {.learning_rate = x}); });
  refused("momentum", [&](double x) { optim::Sgd(model, {.momentum = x}); });
  refused("weight decay", [&](double x) { optim::Sgd(model, {.weight_decay = x}); });
  refused("beta1", [&](double x) { optim::Adam(model, {.beta1 = x}); });
  refused("weight decay", [&](double x) { optim::Adam(model, {.weight_decay = x}); });
  refused("beta2", [&](double x) { optim::Lion(model, {.beta2 = x}); });
  refused("weight decay", [&](double x) { optim::Lion(model, {.weight_decay = x}); });
  refused("beta1", [](double x) { optim::LambRule::check({.beta1 = x}); });
  refused("epsilon", [](double x) { optim::LambRule::check({.epsilon = x}); });
  refused("ema_decay", [&](double x) { optim::AdamW(model, {.ema_decay = x}); });
  refused("momentum", [](double x) { optim::MuonRule::check({.momentum = x}); });
  refused("scale", [](double x) { optim::MuonRule::check({.scale = x}); });
  refused("weight decay", [](double x) { optim::MuonRule::check({.weight_decay = x}); });
  refused("beta1", [](double x) { optim::MuonRule::check({.beta1 = x}); });
  refused("beta2", [](double x) { optim::MuonRule::check({.beta2 = x}); });
  refused("epsilon", [](double x) { optim::MuonRule::check({.epsilon = x}); });
  for (const int steps : {0, -1, 1 << 30}) CHECK_THROWS_AS(optim::MuonRule::check({.steps = steps}), UsageError);
  for (const double wrong : {std::nan(""), double(INFINITY), -1.0}) {
    CHECK_THROWS_WITH_AS(optim::AdamW(model, {.clip = wrong}), doctest::Contains("clip "), UsageError);
    CHECK_THROWS_WITH_AS(optim::Sgd(model, {.clip = wrong}), doctest::Contains("clip "), UsageError);
  }
  optim::AdamW optimizer(model);
  refused("learning rate", [&](double x) { optimizer.step(x); });
}

namespace {
/// An update that needs whole matrices; its arithmetic does not matter here.
struct WholeRule : optim::SgdRule {
  static constexpr bool elementwise = false;
};
using OfMatrices = optim::Optimizer<WholeRule>;
}  // namespace

TEST_CASE("a rule that needs whole parameters is refused where an axis leaves this rank a piece") {
  TwoParameters<float> model;
  CHECK_NOTHROW(OfMatrices{model});
  const auto cut = [&](unsigned axis, const Shape& global) {
    ParameterInfo info = model.states[0].info();
    info.sharded = axis;
    info.global = global;
    const auto value = model.states[0].value();
    model.states.pop_front();
    model.states.emplace_front(std::move(info)).storage().set_value(value);
  };
  cut(axis_bit<tp>, {7, 5});  // an axis of degree 1
  CHECK_NOTHROW(OfMatrices{model});
  cut(axis_bit<tp>, {14, 5});
  CHECK_THROWS_WITH_AS(OfMatrices{model},
                       "weft: this optimizer's rule is not elementwise and matrix [14, 5] is cut over tp: this rank holds [7, "
                       "5]; use degree 1 there, or an elementwise rule",
                       UsageError);
  cut(axis_bit<etp>, {14, 5});
  CHECK_THROWS_WITH_AS(OfMatrices{model}, doctest::Contains("is cut over etp: this rank holds [7, 5]"), UsageError);
  cut(axis_bit<cp>, {14, 5});
  CHECK_THROWS_WITH_AS(OfMatrices{model}, doctest::Contains("is cut over cp: this rank holds [7, 5]"), UsageError);
  CHECK_NOTHROW(optim::Sgd{model});
}

TEST_CASE("a parameter that no micro-batch added to is left alone: no decay, no change of its moments") {
  const auto bytes = [](const auto& buffer, std::size_t size) {
    return std::string(static_cast<const char*>(buffer.get()), size);
  };
  const auto check = [&](auto&& optimizer, auto& model) {
    model.set_gradients(1);
    optimizer.step();  // moments are no longer zero
    const auto& slot = optimizer.slots()[0];
    const std::size_t size = slot.state->gradient_bytes(), value_size = slot.state->bytes();
    const auto everything = [&] {
      return bytes(slot.state->value(), value_size) +
             bytes(slot.master ? slot.master : slot.state->value(), slot.master ? size : value_size) + bytes(slot.kept[0], size);
    };
    const std::string before = everything();
    model.set_gradients(2);
    model.states[0].gradients().set_touched(false);
    double norm = 0;
    for (std::size_t i = 0; i < model.states[1].size(); ++i)
      norm += double(model.gradient(model.states[1])[i]) * double(model.gradient(model.states[1])[i]);
    const std::string other = bytes(model.states[1].value(), model.states[1].bytes());
    CHECK(optimizer.step().gradient_norm == doctest::Approx(std::sqrt(norm)).epsilon(1e-6));
    CHECK(everything() == before);
    CHECK(bytes(model.states[1].value(), model.states[1].bytes()) != other);
    model.states[0].gradients().set_buffer(nullptr);  // nor does it need one
    CHECK_NOTHROW(optimizer.step());
    model.set_gradients(3);
    model.states[0].gradients().set_touched(true);
    optimizer.step();
    CHECK(everything() != before);
  };
  TwoParameters<float> model;
  check(optim::AdamW(model, {.learning_rate = 0.1, .weight_decay = 0.1}), model);
  TwoParameters<bfloat16> narrow;
  check(optim::Sgd(narrow, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1}), narrow);
}

TEST_CASE("an average begins at its parameter, also one without a gradient, and moves in every step") {
  TwoParameters<double> model;
  optim::AdamW optimizer(model, {.learning_rate = 0.1, .ema_decay = 0.75});
  const auto average = [&](std::size_t k, std::size_t i) {
    return static_cast<double*>(optimizer.slots()[k].kept.back().get())[i];
  };
  Elements expected = elements_of(model);
  for (int step = 1; step <= 4; ++step) {
    model.set_gradients(std::uint64_t(step));
    model.states[1].gradients().set_touched(step == 3);
    optimizer.step();
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t i = 0; i < expected[k].size(); ++i) {
        double& mean = expected[k][i].first;
        const double value = model.value(model.states[k])[i];
        mean = step == 1 ? value : mean + 0.25 * (value - mean);
        CHECK(std::abs(average(k, i) - mean) < 1e-15 * (1 + std::abs(mean)));
      }
  }
}

// --- over a mesh -------------------------------------------------------------------------------------------------------------

namespace {

template <class S>
using Inner = TensorParallel<PipelineParallel<models::BasicGpt<S>, schedule::OneForwardOneBackward>>;

// A vocabulary that no degree divides, fused query, key and value with fewer key-value heads than tp, tied ends.
const models::GptConfig config{.vocabulary = 19, .layers = 8, .width = 32, .heads = 8, .kv_heads = 2, .sequence = 8};

/// Gradients that are a function of the global element, as every layout would have them.
template <class Model>
void set_gradients(Model& model) {
  using A = accumulate_t<typename Model::model_type::scalar>;
  model.stages().gradients()->begin(0, false);  // a training step of which only the gradients are there
  model.for_each_state([&](ParameterState& state) {
    if (!state.gradient()) state.gradients().set_buffer(model.device().allocate(state.kept() * sizeof(A)));
    A* gradient = static_cast<A*>(state.gradient().get());
    std::fill_n(gradient, state.kept(), A(0));
    for (const auto& run : state.runs())
      for (std::size_t i = 0; i < run.length; ++i)
        gradient[run.local + i] = A(Philox::normal(site_of(state.name()), run.global + i));
  });
}

template <class S>
double norm_on_one_rank() {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<S>> model(device, config);
  set_gradients(model);
  return optim::AdamW(model).gradient_norm();
}

/// All bytes that a step may change on this rank.
template <class Optimizer>
std::vector<unsigned char> everything(const Optimizer& optimizer) {
  std::vector<unsigned char> bytes;
  const auto append = [&](const detail::Buffer& buffer, std::size_t size) {
    if (!buffer) return;
    const auto* data = static_cast<const unsigned char*>(buffer.get());
    bytes.insert(bytes.end(), data, data + size);
  };
  for (const auto& slot : optimizer.slots()) {
    const std::size_t kept = slot.state->kept();
    append(slot.state->value(), kept * size_of(slot.state->type()));
    append(slot.master, kept * size_of(slot.state->gradient_type()));
    for (const detail::Buffer& buffer : slot.kept) append(buffer, kept * size_of(slot.state->gradient_type()));
  }
  return bytes;
}

struct Spoilt {
  std::size_t gradients = 0, wrong = 0;
} spoilt;  // by all cases together

template <class Composition>
void check_skipping(std::size_t world, const Degrees& degrees) {
  using A = accumulate_t<typename Composition::model_type::scalar>;
  constexpr double bad[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()};
  std::atomic<int> not_skipped = 0, changed = 0, not_applied = 0;
  const int code = run(RunOptions{.ranks = int(world)}, [&](World& rank) {
    Mesh<dp, tp, pp> mesh(rank, degrees);
    Composition model(mesh, config);
    optim::AdamW optimizer(model, {.clip = 1});
    set_gradients(model);
    not_applied += optimizer.step().skipped;  // moments are no longer zero
    const auto before = everything(optimizer);
    for (std::size_t round = 0; round < world * std::size_t(weft_test::rounds(1)); ++round) {
      const std::size_t victim = round % world;
      set_gradients(model);
      if (std::size_t(rank.rank()) == victim) {
        std::vector<ParameterState*> states;
        model.for_each_state([&](ParameterState& state) {
          if (!state.runs().empty()) states.push_back(&state);
        });
        const ParameterState& state = *states[key_of(round, 1) % states.size()];
        const ParameterState::Run& run = state.runs()[key_of(round, 2) % state.runs().size()];
        static_cast<A*>(state.gradient().get())[run.local + key_of(round, 3) % run.length] = A(bad[round % 3]);
      }
      not_skipped += !optimizer.step().skipped;
      changed += everything(optimizer) != before;
    }
    changed += optimizer.steps() != 1;
    set_gradients(model);
    not_applied += optimizer.step().skipped || everything(optimizer) == before;
  });
  CHECK(code == 0);
  CHECK(not_skipped == 0);
  CHECK(changed == 0);
  CHECK(not_applied == 0);
  spoilt.gradients += world * std::size_t(weft_test::rounds(1));
  spoilt.wrong += std::size_t(not_skipped + changed);
}

}  // namespace

TEST_CASE_TEMPLATE("the gradient norm counts each element of the model once in every layout", Composition,
                   DataParallel<Inner<double>>, FullyShardedDataParallel<Inner<double>, zero::Stage1>) {
  const double expected = norm_on_one_rank<double>();
  for (const std::size_t world : {1, 2, 4, 8})
    for_each_degrees(world, [&](const Degrees& degrees, std::size_t data) {
      std::vector<double> norms(world);
      CHECK(run(RunOptions{.ranks = int(world)}, [&](World& rank) {
              Mesh<dp, tp, pp> mesh(rank, degrees);
              Composition model(mesh, config);
              set_gradients(model);
              norms[std::size_t(rank.rank())] = optim::Sgd(model).gradient_norm();
            }) == 0);
      INFO("dp(" << data << ") * tp(" << degrees.tp << ") * pp(" << degrees.pp << ")");
      CHECK(std::abs(norms[0] / expected - 1) <= 1e-12);
      for (const double norm : norms) CHECK(norm == norms[0]);
    });
}

TEST_CASE_TEMPLATE("a gradient that is not finite on one rank stops all ranks and changes nothing", Composition,
                   DataParallel<Inner<float>>, DataParallel<Inner<bfloat16>>,
                   FullyShardedDataParallel<Inner<bfloat16>, zero::Stage3>) {
  for (const std::size_t world : {2, 4, 8})
    for_each_degrees(world, [&](const Degrees& degrees, std::size_t data) {
      INFO("dp(" << data << ") * tp(" << degrees.tp << ") * pp(" << degrees.pp << ")");
      check_skipping<Composition>(world, degrees);
    });
  weft_test::figure(12, spoilt.gradients, "gradients with a NaN or an infinity in one element of one rank", spoilt.wrong,
                    "steps not skipped or not without a trace");
}

TEST_CASE("a rule that needs whole parameters trains where tp is 1, and is refused where it is 2") {
  for (const std::size_t degree : {std::size_t(1), std::size_t(2)}) {
    CHECK(run(RunOptions{.ranks = 2}, [&](World& rank) {
            Mesh<dp, tp, pp> mesh(rank, {.tp = degree});
            DataParallel<Inner<float>> model(mesh, config);
            std::string said;
            try {
              OfMatrices optimizer(model);
              set_gradients(model);
              optimizer.step();
            } catch (const UsageError& error) {
              said = error.what();
            }
            const bool as_expected =
                degree == 1 ? said.empty() : said.find("is cut over tp: this rank holds") != std::string::npos;
            if (!as_expected) throw Error("tp " + std::to_string(degree) + ": " + said);
          }) == 0);
  }
}
