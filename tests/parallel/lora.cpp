// SPDX-License-Identifier: Apache-2.0
// Models with low-rank adapters give one rank's losses, norms, gradients and values in every kind of layout, and their base keeps
// its bits.

#include "support/parity.hpp"

#include <weft/nn/lora.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

#include "support/message.hpp"

using namespace weft_test;

namespace {

constexpr int steps = 2;
template <class Model>
using Rings = FullyShardedDataParallel<ContextParallel<TensorParallel<PipelineParallel<Model>>>>;
template <class Model>
using RowsCut = FullyShardedDataParallel<ContextParallel<SequenceParallel<PipelineParallel<Model>>, Ulysses>>;

LoraOptions adapters(std::vector<std::string> match) {
  return {.rank = 3, .alpha = 6, .dropout = 0.1, .match = std::move(match), .up_deviation = 0.1};
}

/// What a run gives: the same on every rank.
struct Run {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> gradients, values;
  bool base_kept = true;
};
template <class Model>
Run run_of(Model& model, std::size_t data_rank, std::size_t data_ranks, std::size_t micro_batches) {
  Run run;
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  std::map<std::string, std::vector<double>> base;
  for (const std::string& name : model.parameter_names())
    if (!detail::is_adapter(name)) base[name] = model.parameter(name);
  for (int step = 0; step < steps; ++step) {
    run.losses.push_back(model.train_step(make_batch(step, data_rank, data_ranks, micro_batches)));
    if (step == 1)
      for (const std::string& name : model.parameter_names())
        if (detail::is_adapter(name)) run.gradients[name] = model.gradient(name);
    run.norms.push_back(optimizer.step().gradient_norm);
  }
  for (const std::string& name : model.parameter_names())
    if (detail::is_adapter(name)) run.values[name] = model.parameter(name);
    else run.base_kept = run.base_kept && model.parameter(name) == base.at(name);
  return run;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    scale = std::max(scale, std::abs(b[i]));
    most = std::max(most, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : INFINITY);
  }
  return most == 0 ? 0 : most / scale;
}
double difference(const std::map<std::string, std::vector<double>>& a, const std::map<std::string, std::vector<double>>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, values] : a) most = std::max(most, difference(values, b.at(name)));
  return most;
}

struct Entry {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
  const char* schedule;
  int zero;
};

template <class Composition>
void check(const typename Composition::Config& config, const LoraOptions& lora, std::size_t adapted,
           const std::vector<Entry>& entries) {
  DefaultDevice device;
  SingleDevice<typename Composition::model_type> alone(device, config, {.lora = lora});
  const Run reference = run_of(alone, 0, 1, 1);
  CHECK(reference.base_kept);
  CHECK(reference.values.size() == 2 * adapted);
  for (const auto& [name, values] : reference.gradients) {
    INFO(name);
    CHECK(difference(values, std::vector<double>(values.size())) > 0);
  }
  for (const Entry& entry : entries) {
    INFO("world " << entry.world << ", tp " << entry.degrees.tp << ", cp " << entry.degrees.cp << ", pp " << entry.degrees.pp
                  << ", " << entry.schedule << ", ZeRO stage " << entry.zero);
    Run first;
    const int code = runtime::run<comm::Threads>(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
      Mesh<dp, cp, tp, pp> mesh(world, entry.degrees);
      ModelOptions options{.lora = lora};
      options.shard.stage = entry.zero;
      options.pipeline.schedule = schedule::choose(entry.schedule);
      Composition model(mesh, config, options);
      // No gradient and no memory for one of what is frozen.
      model.for_each_state([](ParameterState& state) {
        if (state.trainable() != detail::is_adapter(state.name())) throw Error("not frozen: " + state.name());
      });
      Run run = run_of(model, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches);
      model.for_each_state([](ParameterState& state) {
        if (!state.trainable() && state.gradient()) throw Error("a gradient of the base: " + state.name());
      });
      if (world.rank() == 0) first = std::move(run);
    });
    CHECK(code == 0);
    CHECK(first.base_kept);
    CHECK(difference(first.losses, reference.losses) <= 1e-12);
    CHECK(difference(first.norms, reference.norms) <= 1e-12);
    CHECK(difference(first.gradients, reference.gradients) <= 1e-12);
    CHECK(difference(first.values, reference.values) <= 1e-12);
  }
}

models::GptConfig small_gpt() {
  models::GptConfig config = gpt_config();
  config.layers = 4;
  return config;
}
models::LlamaConfig small_llama() {
  models::LlamaConfig config = llama_config();
  config.layers = 4;
  return config;
}

}  // namespace

TEST_CASE("GPT-2, adapters beside every linear layer") {
  check<Rings<models::BasicGpt<double, Lora>>>(small_gpt(), adapters({"*"}), 4 * 4,
                                               {{2, {}, 2, "1f1b", 0},
                                                {2, {}, 2, "1f1b", 1},
                                                {4, {}, 1, "1f1b", 3},
                                                {2, {.tp = 2}, 2, "1f1b", 0},
                                                {4, {.tp = 2}, 2, "1f1b", 3},
                                                {2, {.cp = 2}, 2, "1f1b", 0},
                                                {4, {.tp = 2, .cp = 2}, 2, "1f1b", 2},
                                                {2, {.pp = 2}, 4, "zb-h1", 0},
                                                {8, {.tp = 2, .pp = 2}, 4, "zbv", 2}});
}
TEST_CASE("Llama, adapters beside some, rows cut over tp, key-value heads fewer than its ranks") {
  check<RowsCut<models::BasicLlama<double, Lora>>>(small_llama(),
                                                   adapters({"*.q_proj", "*.k_proj", "model.layers.?.mlp.down_proj"}), 4 * 3,
                                                   {{2, {.tp = 2}, 2, "1f1b", 0},
                                                    {4, {.tp = 4}, 2, "1f1b", 0},
                                                    {4, {.tp = 2}, 2, "1f1b", 3},
                                                    {4, {.tp = 2, .cp = 2}, 2, "1f1b", 1},
                                                    {8, {.tp = 2, .pp = 2}, 4, "interleaved-zb", 2}});
}

TEST_CASE("a pattern that names no adapter's layer, and a model's type without adapters") {
  DefaultDevice device;
  const auto refused = [&]<class Model>(std::type_identity<Model>, std::vector<std::string> match) {
    return message<UsageError>([&] { SingleDevice<Model>(device, small_llama(), {.lora = adapters(std::move(match))}); });
  };
  const std::string near = refused(std::type_identity<models::BasicLlama<double, Lora>>(), {"*.q_proj", "*.query"});
  CHECK(near.find("ModelOptions::lora.match") != near.npos);
  CHECK(near.find("*.query") != near.npos);
  const std::string plain = refused(std::type_identity<models::BasicLlama<double>>(), {"*"});
  CHECK(plain.find("names no layer that takes an adapter: the model's type says which do") != plain.npos);
  CHECK(refused(std::type_identity<models::BasicLlama<double, Lora>>(), {}).find("lora.match names no layers") != plain.npos);
}
