// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/experts.hpp weft/nn/router.hpp weft/kernels/routing.hpp
// The mixture layer by itself: its gradients by finite differences of the whole objective, compared with a brute-force oracle
// with and without drops, over tp; auxiliary losses and biases by hand.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <weft/context/axes_in_force.hpp>
#include <weft/kernels/routing.hpp>
#include <weft/nn/experts.hpp>
#include <weft/nn/mixture.hpp>
#include <weft/nn/router.hpp>
#include <weft/nn/sequential.hpp>
#include <weft/pipeline/stages.hpp>
#include <weft/testing/check_layer.hpp>

#include "support/made_parameters.hpp"

using namespace weft;
using testing::check_layer, testing::check_layer_on;

namespace {

constexpr std::size_t rows = 16, width = 6, intermediate = 8;
const Shape shape{rows, width};
const testing::CheckOptions two_sequences{.length = 8};
using Exec = DefaultDevice::execution_space;
using Root = Context<Compute<Exec, double>>;

auto mixture_of(const RouterOptions& options) {
  return [=](const auto& context) { return Mixture(context / "moe", width, intermediate, options, 0.7, 0.7); };
}

std::vector<double> values_of(const ParameterState& state) {
  const auto* data = static_cast<const double*>(state.value().get());
  return {data, data + state.size()};
}
std::vector<double> numbers(std::uint64_t key, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2 * Philox::uniform(key, i) - 1;
  return values;
}

// The output by the definition, one token after the other.
std::vector<double> oracle(const Mixture& layer, const weft_test::MadeParameters& made, const std::vector<double>& x,
                           std::size_t length, std::size_t* dropped) {
  const RouterOptions& options = layer.router.options();
  std::map<std::string, std::vector<double>> weights;
  for (const ParameterState* state : made.by_name()) weights[state->name()] = values_of(*state);
  const std::size_t tokens = x.size() / width, experts = options.experts, k = options.top_k;
  std::vector<std::vector<std::pair<std::size_t, double>>> choice(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<double> logits(experts);
    for (std::size_t e = 0; e < experts; ++e)
      for (std::size_t i = 0; i < width; ++i) logits[e] += x[t * width + i] * weights["moe.gate.weight"][e * width + i];
    std::vector<std::size_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    double total = 0;
    for (std::size_t s = 0; s < (options.scores == nn::Scores::after_top_k ? k : experts); ++s)
      total += std::exp(logits[order[s]]);
    for (std::size_t s = 0; s < k; ++s) choice[t].push_back({order[s], std::exp(logits[order[s]]) / total});
  }
  // The kept tokens: each counts the tokens of its group and expert that come before it.
  const std::size_t group = options.level == nn::Level::sequence ? length : tokens;
  const std::size_t capacity =
      options.drop == nn::Drop::none ? tokens : detail::expert_capacity(group, k, experts, options.capacity_factor);
  std::vector<double> y(x.size());
  *dropped = 0;
  for (std::size_t t = 0; t < tokens; ++t)
    for (const auto& [e, w] : choice[t]) {
      std::size_t before = 0;
      for (std::size_t o = t / group * group; o < (t / group + 1) * group; ++o)
        for (const auto& [oe, ow] : choice[o])
          if (oe == e && (options.drop == nn::Drop::by_probability ? ow > w || (ow == w && o < t) : o < t)) ++before;
      if (before >= capacity) {
        ++*dropped;
        continue;
      }
      const std::string name = "moe.experts." + std::to_string(e);
      const auto &w1 = weights[name + ".w1.weight"], &w2 = weights[name + ".w2.weight"], &w3 = weights[name + ".w3.weight"];
      for (std::size_t h = 0; h < intermediate; ++h) {
        double gate = 0, up = 0;
        for (std::size_t i = 0; i < width; ++i) {
          gate += w1[h * width + i] * x[t * width + i];
          up += w3[h * width + i] * x[t * width + i];
        }
        const double active = gate / (1 + std::exp(-gate)) * up;
        for (std::size_t i = 0; i < width; ++i) y[t * width + i] += w * w2[i * intermediate + h] * active;
      }
    }
  return y;
}

void check_oracle(const RouterOptions& options, bool drops) {
  DefaultDevice device;
  detail::Environment environment;
  environment.length = 8;
  const Root context(device, environment);
  weft_test::MadeParameters made;
  const Mixture layer = mixture_of(options)(made.beside(context));
  const auto x = numbers(5, shape.size());
  Tensor<double, Exec> input(device, shape);
  copy_from_host(input, std::span<const double>(x));
  const auto y = copy_to_host(layer.forward(context, input).output);
  std::size_t dropped = 0;
  const auto expected = oracle(layer, made, x, 8, &dropped);
  CHECK((dropped > 0) == drops);
  for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == doctest::Approx(expected[i]).epsilon(1e-12));
}

}  // namespace

TEST_CASE("the output is the definition's, with and without drops") {
  for (const nn::Scores scores : {nn::Scores::after_top_k, nn::Scores::before_top_k}) {
    check_oracle({.experts = 4, .top_k = 2, .scores = scores}, false);
    for (const nn::Level level : {nn::Level::sequence, nn::Level::micro_batch})
      for (const nn::Drop drop : {nn::Drop::by_probability, nn::Drop::by_position}) {
        check_oracle({.experts = 4, .top_k = 2, .scores = scores, .capacity_factor = 0.75, .drop = drop, .level = level}, true);
        check_oracle({.experts = 4, .top_k = 1, .scores = scores, .capacity_factor = 100, .drop = drop, .level = level}, false);
      }
  }
}

TEST_CASE("gradients are those of the whole objective") {
  CHECK_NOTHROW(check_layer(mixture_of({.experts = 4, .top_k = 2}), shape, two_sequences));
  CHECK_NOTHROW(check_layer(mixture_of({.experts = 4, .top_k = 1, .scores = nn::Scores::before_top_k}), shape, two_sequences));
  CHECK_NOTHROW(check_layer(
      mixture_of({.experts = 4, .top_k = 3, .scores = nn::Scores::before_top_k, .auxiliary_loss = 0.5, .z_loss = 0.3}), shape,
      two_sequences));
  CHECK_NOTHROW(
      check_layer(mixture_of({.experts = 4, .top_k = 2, .auxiliary_loss = 0.5, .z_loss = 0.3, .level = nn::Level::micro_batch}),
                  shape, two_sequences));
  CHECK_NOTHROW(check_layer(
      mixture_of({.experts = 4, .top_k = 2, .auxiliary_loss = 0.5, .capacity_factor = 0.75, .drop = nn::Drop::by_position}),
      shape, two_sequences));
  // More experts than slots: some have no token, and their gradient is zero.
  CHECK_NOTHROW(check_layer(mixture_of({.experts = 40, .top_k = 1, .auxiliary_loss = 0.5}), shape, two_sequences));
}

TEST_CASE("over tp: rows are routed once, whichever rank holds them") {
  const auto block = [](const RouterOptions& options) {
    return
        [=](const auto& context) { return Residual(Sequential(RmsNorm(context / "norm", width), mixture_of(options)(context))); };
  };
  for (const RouterOptions& options :
       {RouterOptions{.experts = 4, .top_k = 2, .auxiliary_loss = 0.5, .z_loss = 0.3},
        RouterOptions{.experts = 4, .top_k = 2, .auxiliary_loss = 0.5, .capacity_factor = 0.75, .drop = nn::Drop::by_probability},
        RouterOptions{
            .experts = 40, .top_k = 1, .capacity_factor = 1, .drop = nn::Drop::by_position, .level = nn::Level::micro_batch}}) {
    CHECK_NOTHROW(check_layer_on<tp>(2, block(options), shape, two_sequences));
    CHECK_NOTHROW((check_layer_on<tp, Shard<tp, 0>>(4, block(options), shape, two_sequences)));
  }
}

namespace {
// A router whose logits are its input.
struct Fixture {
  DefaultDevice device;
  detail::Environment environment;
  std::vector<std::shared_ptr<detail::StepBuffer>> buffers;
  RouterOptions options;

  auto route(const std::vector<double>& logits, int steps = 1) {
    const std::size_t experts = options.experts, tokens = logits.size() / experts;
    environment.length = tokens;
    buffers.clear();
    Root context(device, environment);
    context.construction.buffers = &buffers;
    detail::Router router(context / "gate", experts, options);
    std::vector<double> identity(experts * experts);
    for (std::size_t e = 0; e < experts; ++e) identity[e * experts + e] = 1;
    copy_from_host(Tensor<double, Exec>(device, {experts, experts}, router.weight.state().value()),
                   std::span<const double>(identity));
    Tensor<double, Exec> x(device, {tokens, experts});
    copy_from_host(x, std::span<const double>(logits));
    auto routed = router.forward(context, x);
    const Tensor<double, Exec> d_weights(device, {tokens, options.top_k});
    copy_from_host(d_weights, std::vector<double>(d_weights.size()));
    for (int step = 1; step < steps; ++step) {
      router.backward_input(context, x, routed, d_weights);
      detail::renew(detail::AxesInForce(context), buffers);
      routed = router.forward(context, x);
    }
    router.backward_input(context, x, routed, d_weights);
    detail::renew(detail::AxesInForce(context), buffers);
    return routed;
  }
};
}  // namespace

TEST_CASE("auxiliary loss: its coefficient where experts are balanced, E / k times that where all go to k of them") {
  Fixture fixture;
  fixture.options = {.experts = 4, .top_k = 2, .auxiliary_loss = 0.01};
  const double on = 40, off = -40;
  std::vector<double> all_on_two, balanced;
  for (int t = 0; t < 8; ++t)
    for (int e = 0; e < 4; ++e) {
      all_on_two.push_back(e < 2 ? on : off);
      balanced.push_back((e < 2) == (t % 2 == 0) ? on : off);
    }
  fixture.route(all_on_two);
  CHECK(fixture.buffers.back()->name == "gate.load");
  CHECK(fixture.buffers.back()->value[5] == doctest::Approx(2.0 * 0.01).epsilon(1e-12));  // per token
  fixture.route(balanced);
  CHECK(fixture.buffers.back()->value[5] == doctest::Approx(0.01).epsilon(1e-12));
  fixture.options = {.experts = 4, .top_k = 2, .z_loss = 0.1};
  fixture.route(balanced);
  CHECK(fixture.buffers.back()->value[6] == doctest::Approx(0.1 * std::pow(on + std::log(2.0), 2)).epsilon(1e-12));
}

namespace {

// transformers.models.mixtral.modeling_mixtral.load_balancing_loss_func without a mask: logits [tokens, experts] of each layer.
double load_balancing_loss(const std::vector<std::vector<double>>& layers, std::size_t experts, std::size_t k) {
  std::vector<std::vector<double>> tokens_per_expert(
      k, std::vector<double>(experts));  // [k, experts]: means over the tokens of all layers
  std::vector<double> probability(experts);
  double tokens = 0;
  for (const auto& logits : layers) tokens += double(logits.size() / experts);
  for (const auto& logits : layers)
    for (std::size_t t = 0; t < logits.size() / experts; ++t) {
      const double* z = logits.data() + t * experts;
      double total = 0;
      for (std::size_t e = 0; e < experts; ++e) total += std::exp(z[e]);
      std::vector<std::size_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return z[a] > z[b]; });
      for (std::size_t s = 0; s < k; ++s) tokens_per_expert[s][order[s]] += 1 / tokens;
      for (std::size_t e = 0; e < experts; ++e) probability[e] += std::exp(z[e]) / total / tokens;
    }
  double loss = 0;
  for (const auto& of_slot : tokens_per_expert)
    for (std::size_t e = 0; e < experts; ++e) loss += of_slot[e] * probability[e];
  return loss * double(experts);
}

}  // namespace

TEST_CASE(
    "auxiliary loss: Hugging Face's with coefficient c is this one's with c k, c k / L for each of L layers that are loaded "
    "alike") {
  const double c = 0.03;
  for (const std::size_t k : {1, 2, 3}) {
    const std::size_t experts = 5, tokens = 24;
    const auto logits = numbers(11 + k, tokens * experts);
    const double expected = c * load_balancing_loss({logits}, experts, k);
    for (const nn::Level level : {nn::Level::micro_batch, nn::Level::data}) {
      Fixture fixture;
      fixture.options = {.experts = experts, .top_k = k, .auxiliary_loss = c * double(k), .level = level};
      fixture.environment.auxiliary_gradient = 1.0 / double(tokens);  // as a step sets it, for any number of counted tokens
      fixture.environment.loss_gradient = 100;
      const auto routed = fixture.route(logits);
      CHECK(fixture.buffers.back()->value[experts + 1] == doctest::Approx(expected).epsilon(1e-13));
      CHECK(routed.added_loss == doctest::Approx(expected).epsilon(1e-13));
      // Its gradient: of each probability of a token, c experts n_e / tokens^2.
      const auto balance = copy_to_host(routed.balance), load = fixture.buffers.back()->value;
      for (std::size_t e = 0; e < experts; ++e)
        CHECK(balance[e] == doctest::Approx(c * double(experts) * load[e] / double(tokens)).epsilon(1e-13));
      const std::vector<std::vector<double>> alike(3, logits);
      fixture.options.auxiliary_loss = c * double(k) / 3;
      fixture.route(logits);
      CHECK(3 * fixture.buffers.back()->value[experts + 1] ==
            doctest::Approx(c * load_balancing_loss(alike, experts, k)).epsilon(1e-13));
    }
  }
}

TEST_CASE("ties go to the lowest expert; far logits do not tie by underflow") {
  Fixture fixture;
  fixture.options = {.experts = 4, .top_k = 2};
  CHECK(copy_to_host(fixture.route({1, 1, 1, 1, 0, 2, 1, 2, -1000, 0, -900, -1100}).chosen) ==
        std::vector<std::int32_t>{0, 1, 1, 3, 1, 2});
}

TEST_CASE("the bias moves the choice and not the weights") {
  Fixture fixture;
  fixture.options = {.experts = 2, .top_k = 1, .scores = nn::Scores::before_top_k, .bias_rate = 0.05};
  const std::vector<double> logits = {0.1, 0, 0.1, 0, 0.1, 0, 0.3, 0};  // all prefer expert 0 at first
  CHECK(copy_to_host(fixture.route(logits).chosen) == std::vector<std::int32_t>{0, 0, 0, 0});
  CHECK(fixture.buffers.front()->value == std::vector<double>{-0.05, 0.05});
  const auto routed = fixture.route(logits, 2);
  CHECK(copy_to_host(routed.chosen) == std::vector<std::int32_t>{1, 1, 1, 0});
  CHECK(copy_to_host(routed.weights)[0] == doctest::Approx(1 / (1 + std::exp(0.1))));
}

TEST_CASE("a router counts a micro-batch once, in its backward: forward alone changes nothing") {
  DefaultDevice device;
  detail::Environment environment;
  std::vector<std::shared_ptr<detail::StepBuffer>> buffers;
  environment.length = 4;
  Root context(device, environment);
  context.construction.buffers = &buffers;
  detail::Router router(context / "gate", 3,
                        {.experts = 3, .top_k = 2, .auxiliary_loss = 0.01, .z_loss = 0.1, .bias_rate = 0.05});
  const detail::Router& const_router = router;
  const std::vector<double> nothing_of_bias(3), nothing_of_load(7);
  const auto bias = [&] { return buffers.front()->sum; };
  const auto load = [&] { return buffers.back()->sum; };
  const auto input = [&](unsigned seed) {
    Tensor<double, Exec> x(device, {4, 3});
    copy_from_host(x, std::span<const double>(numbers(seed, 12)));
    return x;
  };
  const auto first = input(1), second = input(2);
  const Tensor<double, Exec> d_weights(device, {4, 2});
  copy_from_host(d_weights, std::vector<double>(8));

  context.env.training = false;
  const auto evaluated = const_router.forward(context, first);
  CHECK(evaluated.counted.empty());
  router.backward_input(context, first, evaluated, d_weights);
  CHECK(bias() == nothing_of_bias);
  CHECK(load() == nothing_of_load);

  context.env.training = true;
  const auto one = const_router.forward(context, first), other = const_router.forward(context, second);  // two in flight
  const auto again = const_router.forward(context, first);  // as a recomputation does
  CHECK(bias() == nothing_of_bias);
  CHECK(load() == nothing_of_load);
  CHECK(again.counted == one.counted);
  router.backward_input(context, second, other, d_weights);
  CHECK(load() == other.counted);
  router.backward_input(context, first, again, d_weights);
  const auto counts = bias(), all = load();
  CHECK(counts == std::vector<double>(all.begin(), all.begin() + 3));
  CHECK(std::accumulate(counts.begin(), counts.end(), 0.0) == 2 * 8);
  CHECK(all.back() == 8);
  CHECK(all[4] == other.counted[4] + one.counted[4]);  // auxiliary loss
  CHECK(all[4] > 0);
  CHECK(all[5] > 0);  // z-loss
}

TEST_CASE("the slots of some rows that go to an expert are one run") {
  constexpr std::size_t experts = 5, k = 2, rows = 12;
  std::vector<std::int32_t> chosen;
  std::vector<char> kept;
  for (std::size_t slot = 0; slot < rows * k; ++slot) {
    chosen.push_back(std::int32_t(Philox::uniform(experts, slot) * double(experts - 1)));  // the last one has no slots
    kept.push_back(slot % 7 != 3);
  }
  for (const std::size_t grain : {1, 4}) {
    const detail::Assignments made = detail::assign(chosen, experts, kept, grain);
    for (std::size_t expert = 0; expert < experts; ++expert)
      for (std::size_t first = 0; first < rows; ++first)
        for (std::size_t count = 0; first + count <= rows; ++count) {
          const auto run = made.run_of(expert, first * k, count * k);
          std::vector<std::int32_t> slots, expected;
          for (std::size_t i = 0; i < run.second; ++i) slots.push_back(made.order.at(run.first + i));
          for (std::size_t slot = first * k; slot < (first + count) * k; ++slot)
            if (chosen[slot] == std::int32_t(expert) && kept[slot]) expected.push_back(std::int32_t(slot));
          CHECK(slots == expected);
        }
  }
}

TEST_CASE("capacity: rounded up, and the worked examples") {
  CHECK(detail::expert_capacity(8, 2, 4, 1) == 4);
  CHECK(detail::expert_capacity(8, 2, 4, 1.25) == 5);
  CHECK(detail::expert_capacity(8, 2, 4, 1.3) == 6);
}

TEST_CASE("impossible configs are refused with the numbers") {
  DefaultDevice device;
  const Root context(device, detail::Environment{});
  CHECK_THROWS_WITH_AS(detail::Router(context, width, {.experts = 4, .top_k = 5}), "weft: top-k(5) of experts(4): can be 1 to 4",
                       LayoutError);
  CHECK_THROWS_WITH_AS(detail::Router(context, width, {.experts = 4, .top_k = 2, .drop = nn::Drop::by_position}),
                       doctest::Contains("where tokens are dropped it must be above 0"), UsageError);
  CHECK_THROWS_WITH_AS(detail::Router(context, width, {.experts = 4, .top_k = 2, .capacity_factor = 1}),
                       doctest::Contains("without a rule for dropping"), UsageError);
  CHECK_THROWS_WITH_AS(detail::require_experts(8, 48, 3, 1),
                       "weft: experts(8) % ep(3) != 0: a rank holds whole experts; ep can be 1, 2, 4 or 8", LayoutError);
  CHECK_THROWS_WITH_AS(detail::require_experts(8, 9, 2, 2),
                       "weft: intermediate(9) % etp(2) != 0: an expert is cut evenly; etp can be 1, 3 or 9", LayoutError);
}
