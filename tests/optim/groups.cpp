// SPDX-License-Identifier: Apache-2.0
// Groups of parameters have their rate, decay and rule, to the bit, in every stage of ZeRO, with tp and pp; patterns without
// matches are refused.

#include <weft/optim/groups.hpp>

#include "support/parity.hpp"

using namespace weft_test;

namespace {

using Weights = std::map<std::string, std::vector<double>>;

const models::GptConfig config{.vocabulary = batch_vocabulary,
                               .layers = 4,
                               .width = 16,
                               .heads = 4,
                               .kv_heads = 2,
                               .sequence = batch_length,
                               .dropout = 0.1};

template <class M>
Weights weights_of(M& model) {
  Weights all;
  for (const std::string& name : model.parameter_names()) all[name] = model.parameter(name);
  return all;
}

/// The parameters after a step of each optimizer, which all have the same gradients, and a second step at half the rate.
template <class M, class Optimizer>
Weights after(const auto& mesh, const typename Optimizer::Options& options, int stage) {
  M model(mesh, config, {.shard = {.stage = stage}});
  Optimizer optimizer(model, options);
  const auto data = mesh.comm(dp{});
  model.train_step(make_batch(0, std::size_t(data.rank()), std::size_t(data.size()), 2));
  optimizer.step();
  model.train_step(make_batch(0, std::size_t(data.rank()), std::size_t(data.size()), 2));
  // With the rates at 0 the second step changes nothing, and with a ratio nothing either.
  optimizer.step(0);
  return weights_of(model);
}

std::string text_of(auto&& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return std::string(error.what());
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a group's parameters have the bits of a run in which all have its options") {
  using M = FullyShardedDataParallel<TensorParallel<PipelineParallel<models::BasicGpt<float>>>>;
  const optim::AdamWOptions own{.learning_rate = 1e-2, .weight_decay = 0.5};
  optim::AdamWOptions without = own, slow = own, grouped = own;
  without.weight_decay = 0;
  slow.learning_rate = 1e-3;
  grouped.groups = {{.match = "*.bias", .weight_decay = 0},
                    {.match = "*.h.2.*", .learning_rate = 1e-3},
                    {.match = "*.h.2.*", .learning_rate = 7}};  // the first group that matches counts
  for (const int stage : {0, 1, 2, 3})
    for (const Degrees& degrees : {Degrees{}, Degrees{.tp = 2}, Degrees{.pp = 2}}) {
      const int world = int(2 * degrees.tp * degrees.pp);
      INFO("stage " << stage << ", world " << world << ", tp " << degrees.tp << ", pp " << degrees.pp);
      Weights of_own, of_without, of_slow, of_groups;
      CHECK(runtime::run(runtime::RunOptions{.ranks = world}, [&](World& rank) {
              Mesh<dp, tp, pp> mesh(rank, degrees);
              const Weights a = after<M, optim::AdamW>(mesh, own, stage), b = after<M, optim::AdamW>(mesh, without, stage),
                            c = after<M, optim::AdamW>(mesh, slow, stage), d = after<M, optim::AdamW>(mesh, grouped, stage);
              if (rank.rank() == 0) of_own = a, of_without = b, of_slow = c, of_groups = d;
            }) == 0);
      for (const auto& entry : of_groups) {
        const std::string& name = entry.first;
        const std::vector<double>& values = entry.second;
        const Weights& expected = detail::matches("*.bias", name)    ? of_without
                                  : detail::matches("*.h.2.*", name) ? of_slow
                                                                     : of_own;
        CHECK_MESSAGE(expected.at(name) == values, name);
      }
      CHECK(of_slow.at("transformer.h.2.ln_1.weight") != of_own.at("transformer.h.2.ln_1.weight"));
    }
}

TEST_CASE("a rate that step() is given keeps a group's ratio") {
  DefaultDevice device;
  using M = SingleDevice<models::BasicGpt<double>>;
  M model(device, config), other(device, config);
  optim::Sgd grouped(model, {.learning_rate = 0.4, .groups = {{.match = "*.bias", .learning_rate = 0.1}}}),
      plain(other, {.learning_rate = 0.4});
  for (M* of : {&model, &other}) of->train_step(make_batch(0, 0, 1, 1));
  const Weights before = weights_of(model);
  grouped.step(0.04);
  plain.step(0.04);
  const Weights first = weights_of(model), second = weights_of(other);
  for (const auto& entry : first) {
    const std::string& name = entry.first;
    const std::vector<double>& values = entry.second;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double ratio = detail::matches("*.bias", name) ? 0.25 : 1, change = second.at(name)[i] - before.at(name)[i];
      CHECK_MESSAGE(std::abs(values[i] - before.at(name)[i] - ratio * change) <= 1e-14, name);
    }
  }
}

TEST_CASE("a group of Muon may have AdamW's rule, and one of AdamW's Muon's") {
  DefaultDevice device;
  using M = SingleDevice<models::BasicGpt<double>>;
  M model(device, config), by_adamw(device, config), by_muon(device, config);
  optim::Muon mixed(model, {.groups = {{.match = "*.h.1.*", .rule = "adamw"}, {.match = "*.wpe.weight", .rule = "muon"}}}),
      muon(by_muon, {});
  optim::AdamW adamw(by_adamw, {.beta2 = 0.95, .weight_decay = 0.1});
  for (M* of : {&model, &by_adamw, &by_muon}) of->train_step(make_batch(0, 0, 1, 1));
  mixed.step();
  adamw.step();
  muon.step();
  const Weights seen = weights_of(model), a = weights_of(by_adamw), m = weights_of(by_muon);
  CHECK(seen.at("transformer.wpe.weight") != a.at("transformer.wpe.weight"));
  CHECK(m.at("transformer.wpe.weight") == a.at("transformer.wpe.weight"));
  for (const auto& entry : seen) {
    const std::string& name = entry.first;
    const std::vector<double>& values = entry.second;
    if (name == "transformer.wpe.weight") continue;
    const bool matrix =
        detail::matches("*.h.*.weight", name) && !detail::matches("*.ln_*", name) && !detail::matches("*.h.1.*", name);
    CHECK_MESSAGE(values == (matrix ? m : a).at(name), name);
    if (matrix) CHECK_MESSAGE(values != a.at(name), name);
  }
}

TEST_CASE("refused groups") {
  DefaultDevice device;
  SingleDevice<models::BasicGpt<float>> model(device, config);
  CHECK(text_of([&] {
          optim::AdamW(model, {.groups = {{.match = "*.bais", .weight_decay = 0}}});
        }).find("weft: optimizer groups: \"*.bais\" names none of the 52 parameters of the model; near it are ") == 0);
  CHECK(text_of([&] { optim::AdamW(model, {.learning_rate = 0, .groups = {{.match = "*", .learning_rate = 1}}}); }) ==
        "weft: group \"*\" has a learning rate and the optimizer's own is 0, so a rate that step() is given has no ratio to it: "
        "give the optimizer one");
  CHECK(text_of([&] { optim::AdamW(model, {.groups = {{.match = "*", .weight_decay = -1}}}); }) ==
        "weft: weight decay -1.000000 is not a number of at least 0 and below 1e+06");
  CHECK(text_of([&] { optim::AdamW(model, {.groups = {{.match = "*", .learning_rate = -1}}}); }) ==
        "weft: learning rate -1.000000 is not a number of at least 0");
  CHECK(text_of([&] { optim::AdamW(model, {.learning_rate = 1e-300, .groups = {{.match = "*", .learning_rate = 1}}}); }) ==
        "weft: a group's learning rate divided by the optimizer's, 1e+300 is not a number of at least 0");
}
