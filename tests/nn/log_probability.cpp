// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/loss.hpp
// log_probability: its values and gradient against cross_entropy, finite differences, one rank beside tp, and the bits that
// generate gives in a batch-invariant run.

#include <weft/nn/loss.hpp>

#include "generation/invariance.hpp"

using namespace weft_test;

namespace {

using Layout = DataParallel<TensorParallel<models::BasicGpt<double>>>;

models::GptConfig config_of() {
  models::GptConfig config = gpt_config();
  config.layers = 1;
  config.sequence = trained_length;
  config.dropout = 0;
  config.standard_deviation = 0.3;
  return config;
}

/// Calls f(log-probabilities, targets), Variables, in a loss of the model's logits for the batch's only micro-batch. Some tokens
/// have no target. `z`: other logits than the model's.
template <class Model, class Z, class F>
auto loss_of(Model& model, const TokenBatch& batch, const Z& z, const F& f) {
  Tensor<std::int32_t, DefaultDevice::execution_space> targets(z.device(), {batch.targets.size()});
  copy_from_host(targets, std::span<const std::int32_t>(batch.targets));
  return model.loss(
      batch, MicroBatchIndex{0},
      [targets, f](const auto& x) {
        using C = typename std::remove_cvref_t<decltype(x)>::context_type;
        using Ids = weft::detail::input_t<std::int32_t, C>;
        const Variable<C, Ids> ids(relabel<Ids>(targets), x.tape());
        return f(log_probability(x, ids, batch_vocabulary), ids, x);
      },
      z);
}

TokenBatch batch_of() {
  TokenBatch batch{.sequences = 2, .length = trained_length};
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    batch.tokens.push_back(std::int32_t(i * 7 % batch_vocabulary));
    batch.targets.push_back(i % 5 == 3 ? -1 : std::int32_t((i * 11 + 2) % batch_vocabulary));
  }
  return batch;
}

const auto minus_log = [](const auto& log_p, const auto& targets, const auto&) { return sum_losses(log_p * -1, targets); };
const auto squares = [](const auto& log_p, const auto& targets, const auto&) { return sum_losses(log_p * log_p * 0.5, targets); };
const auto entropy = [](const auto&, const auto& targets, const auto& x) { return cross_entropy(x, targets, batch_vocabulary); };

}  // namespace

TEST_CASE("minus the sum of log-probabilities is cross-entropy, with its gradient") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> model(device, config_of());
  const TokenBatch batch = batch_of();
  const auto call = model.forward(batch);
  auto ours = loss_of(model, batch, call.output(), minus_log);
  auto theirs = loss_of(model, batch, call.output(), entropy);
  CHECK(std::abs(ours.value() - theirs.value()) <= 1e-14 * std::abs(theirs.value()));
  const auto a = copy_to_host(ours.backward()), b = copy_to_host(theirs.backward());
  REQUIRE(a.size() == b.size());
  double largest = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i])), size = std::max(size, std::abs(b[i]));
  CHECK(size > 1e-3);
  CHECK(largest <= 1e-15);
}

TEST_CASE("the gradient of a loss that is not linear in log-probabilities is that of finite differences") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> model(device, config_of());
  const TokenBatch batch = batch_of();
  const auto call = model.forward(batch);
  const auto& z = call.output();
  const auto gradient = copy_to_host(loss_of(model, batch, z, squares).backward());
  auto numbers = copy_to_host(z);
  for (const std::size_t i : {std::size_t(2), std::size_t(3 * batch_vocabulary + 1), std::size_t(5 * batch_vocabulary + 4),
                              std::size_t(9 * batch_vocabulary + std::size_t(batch.targets[9]))}) {
    const double h = 1e-5, before = numbers[i];
    double value[2];
    for (const int side : {0, 1}) {
      numbers[i] = before + (side ? h : -h);
      std::remove_cvref_t<decltype(z)> moved(z.device(), z.shape());
      copy_from_host(moved, std::span<const double>(numbers));
      value[side] = loss_of(model, batch, moved, squares).value();
    }
    numbers[i] = before;
    const bool counts = batch.targets[i / batch_vocabulary] >= 0;
    CHECK((gradient[i] != 0) == counts);
    CHECK(std::abs(gradient[i] - (value[1] - value[0]) / (2 * h)) <= 1e-9);
  }
}

TEST_CASE("over tp a policy's loss and gradients are those of one rank") {
  const auto trained = [](auto& model) {
    const TokenBatch batch = batch_of();
    auto call = model.forward(batch);
    auto loss = loss_of(model, batch, call.output(), squares);
    std::vector<double> all = {loss.value()};
    call.backward(loss.backward());
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    optimizer.step();
    for (const std::string& name : model.parameter_names())
      for (const double one : model.parameter(name)) all.push_back(one);
    return all;
  };
  DefaultDevice device;
  SingleDevice<models::BasicGpt<double>> one(device, config_of());
  const std::vector<double> expected = trained(one);
  for (const int ranks : {2, 4}) {
    double largest = 0;
    std::mutex mutex;
    CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, [&](World& world) {
            Mesh<dp, tp> mesh(world, {.tp = std::size_t(ranks)});
            Layout model(mesh, config_of());
            const std::vector<double> mine = trained(model);
            std::lock_guard lock(mutex);
            for (std::size_t i = 0; i < expected.size(); ++i)
              largest = std::max(largest, i < mine.size() ? std::abs(mine[i] - expected[i]) : 1e300);
          }) == 0);
    CHECK(largest <= 1e-8);  // AdamW divides small gradients by their size
  }
}

TEST_CASE("a training forward has the log-probabilities of generate, bit by bit") {
  using Model = models::BasicGpt<float>;
  std::size_t apart[2];
  for (const bool invariant : {false, true}) {
    DefaultDevice device;
    SingleDevice<Model> model(device, config_of(), {.numerics = {.batch_invariant = invariant}});
    const Generated made = generate(model, scored_prompts, {.max_new_tokens = new_tokens, .log_probabilities = true});
    TokenBatch batch{.sequences = made.size(), .length = trained_length};
    for (std::size_t i = 0; i < made.size(); ++i) {
      std::vector<std::int32_t> tokens = scored_prompts[i];
      tokens.insert(tokens.end(), made[i].begin(), made[i].end());
      tokens.resize(trained_length);
      batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
      for (std::size_t at = 0; at < trained_length; ++at) {
        const std::size_t next = at + 1 - scored_prompts[i].size();  // wraps around before the last token of a prompt
        batch.targets.push_back(next < made[i].size() ? made[i][next] : -1);
      }
    }
    std::vector<float> found;
    const auto call = model.forward(batch);
    loss_of(model, batch, call.output(), [&found](const auto& log_p, const auto& targets, const auto&) {
      found = copy_to_host(log_p.value());
      return sum_losses(log_p * -1, targets);
    });
    REQUIRE(found.size() == batch.targets.size());
    Scores scores(made.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (batch.targets[i] >= 0) scores[i / trained_length].push_back(double(found[i]));
      else CHECK(found[i] == 0);
    }
    apart[invariant] = bits_apart(scores, made.log_probabilities);
  }
  CHECK(apart[true] == 0);
  CHECK(apart[false] > 0);
  CHECK(apart[false] < 1000);
}
