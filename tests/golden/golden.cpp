// SPDX-License-Identifier: Apache-2.0
// covers: weft/models/gpt.hpp weft/models/llama.hpp
// PyTorch's logits, loss, gradients and AdamW steps (make_golden.py), in double: on one rank, and over 2 x 2 x 2 ranks, with
// every parameter sharded or shared in some way.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

constexpr double tolerance = 1e-11;  // relative to the largest value of a tensor; sums are in another order than PyTorch's

struct Golden {
  nlohmann::json json;
  std::map<std::string, std::vector<double>> parameters, gradients;
  std::vector<std::vector<std::int32_t>> tokens, targets;

  explicit Golden(const std::string& name) {
    std::ifstream in(std::string(WEFT_GOLDEN_FOLDER) + "/" + name + ".json");
    REQUIRE_MESSAGE(in, name);
    json = nlohmann::json::parse(in);
    for (const auto& [key, tensor] : json["parameters"].items()) parameters[key] = tensor["values"].get<std::vector<double>>();
    for (const auto& [key, tensor] : json["gradients"].items()) gradients[key] = tensor["values"].get<std::vector<double>>();
    tokens = json["tokens"].get<std::vector<std::vector<std::int32_t>>>();
    targets = json["targets"].get<std::vector<std::vector<std::int32_t>>>();
  }

  template <class Config>
  Config config() const {
    const auto& c = json["config"];
    Config config;
    config.vocabulary = c["vocabulary"];
    config.layers = c["layers"];
    config.width = c["width"];
    config.heads = c["heads"];
    config.kv_heads = c["kv_heads"];
    config.sequence = c["sequence"];
    config.epsilon = c["norm_epsilon"];
    if constexpr (requires { config.rope_base; }) {
      config.intermediate = c["hidden"];
      config.rope_base = c["rope_base"];
      config.tied = c["tied"];
    }
    return config;
  }

  Batch batch(std::size_t share, std::size_t shares, std::size_t micro_batches) const {
    Batch batch;
    batch.sequences = tokens.size() / shares;
    batch.length = tokens[0].size();
    batch.micro_batches = micro_batches;
    batch.first_sequence = share * batch.sequences;
    for (std::size_t s = batch.first_sequence; s < batch.first_sequence + batch.sequences; ++s) {
      batch.tokens.insert(batch.tokens.end(), tokens[s].begin(), tokens[s].end());
      batch.targets.insert(batch.targets.end(), targets[s].begin(), targets[s].end());
    }
    return batch;
  }
};

double error_of(double got, double expected, double scale) {
  const double error = std::abs(got - expected) / scale;
  return std::isfinite(error) ? error : 1e300;
}

double scale_of(const std::vector<double>& values) {
  double scale = 1e-6;
  for (const double value : values) scale = std::max(scale, std::abs(value));
  return scale;
}

/// Worst errors of one rank, all of one kind in one number.
struct Errors {
  double logits = 0, loss = 0, gradients = 0, training = 0;
  std::size_t elements = 0;  // of parameters, counted once over all ranks
  std::string unknown;       // a name that the reference does not have
};

template <class Model>
Errors compare(const Golden& golden, Model& model, const Batch& batch) {
  Errors errors;
  model.for_each_state([&](ParameterState& state) {
    const auto found = golden.parameters.find(state.name());
    if (found == golden.parameters.end() || found->second.size() != state.global().size()) {
      errors.unknown = state.name();
      return;
    }
    for (const auto& run : state.runs()) {
      std::copy_n(found->second.begin() + std::ptrdiff_t(run.global), run.length,
                  static_cast<double*>(state.value().get()) + run.local);
      if (state.counted() && run.owned) errors.elements += run.length;
    }
  });
  if (!errors.unknown.empty()) return errors;

  const auto expected = golden.json["logits"].get<std::vector<std::vector<std::vector<double>>>>();
  for (std::size_t s = 0; s < golden.tokens.size(); ++s) {
    const std::vector<double> logits = model.logits(golden.tokens[s]);
    for (std::size_t t = 0; t < expected[s].size(); ++t)
      for (std::size_t v = 0; v < expected[s][t].size(); ++v)
        errors.logits = std::max(errors.logits, error_of(logits[t * expected[s][t].size() + v], expected[s][t][v], 1));
  }

  errors.loss = std::max(error_of(model.evaluate(batch), golden.json["loss"], 1),
                         error_of(model.train_step(batch), golden.json["loss"], 1));
  model.for_each_state([&](ParameterState& state) {
    const auto& reference = golden.gradients.at(state.name());
    const double scale = scale_of(reference);
    for (const auto& run : state.runs())
      for (std::size_t i = 0; i < run.length; ++i)
        errors.gradients = std::max(errors.gradients, error_of(static_cast<const double*>(state.gradient().get())[run.local + i],
                                                               reference[run.global + i], scale));
  });

  const auto& training = golden.json["training"];
  optim::AdamW optimizer(model, {.learning_rate = training["learning_rate"],
                                 .beta1 = training["beta1"],
                                 .beta2 = training["beta2"],
                                 .epsilon = training["epsilon"],
                                 .weight_decay = training["weight_decay"],
                                 .decay_vectors = false,
                                 .clip = training["clip"]});
  for (std::size_t step = 0; step < training["losses"].size(); ++step) {
    errors.training = std::max(errors.training, error_of(model.train_step(batch), training["losses"][step], 1));
    errors.training = std::max(errors.training, error_of(optimizer.step().gradient_norm, training["gradient_norms"][step], 1));
  }
  errors.training = std::max(errors.training, error_of(model.evaluate(batch), training["loss_after"], 1));
  return errors;
}

void check(const Golden& golden, const Errors& errors) {
  std::size_t elements = 0;
  for (const auto& [name, values] : golden.parameters) elements += values.size();
  CHECK(errors.unknown == "");
  CHECK(errors.elements == elements);
  CHECK(errors.logits < tolerance);
  CHECK(errors.loss < tolerance);
  CHECK(errors.gradients < tolerance);
  CHECK(errors.training < 1e-9);  // Adam divides by square roots of small numbers
}

template <class Model>
void check_one_rank(const std::string& name) {
  const Golden golden(name);
  DefaultDevice device;
  SingleDevice<Model> model(device, golden.config<typename Model::Config>());
  check(golden, compare(golden, model, golden.batch(0, 1, 1)));
}

#ifndef WEFT_GOLDEN_ONE_RANK
template <class Model>
void check_eight_ranks(const std::string& name) {
  using Parallel = DataParallel<TensorParallel<PipelineParallel<Model, schedule::OneForwardOneBackward>>>;
  const Golden golden(name);
  Errors all;
  const int code = run<comm::Threads>(RunOptions{.ranks = 8}, [&](World& world) {
    Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});
    Parallel model(mesh, golden.config<typename Model::Config>());
    const Errors mine = compare(golden, model, golden.batch(std::size_t(mesh.rank(dp{})), 2, 2));
    std::vector<double> worst{mine.logits, mine.loss, mine.gradients, mine.training, mine.unknown.empty() ? 0.0 : 1.0};
    std::vector<std::size_t> elements{mine.elements};
    world.communicator().all_reduce(worst, Reduction::max);
    world.communicator().all_reduce(elements);
    if (world.rank() == 0)
      all = {worst[0], worst[1], worst[2], worst[3], elements[0], worst[4] == 0 ? "" : "a rank has a parameter of another name"};
  });
  CHECK(code == 0);
  check(golden, all);
}

#endif

}  // namespace

TEST_CASE("GPT on one rank") { check_one_rank<models::BasicGpt<double>>("gpt"); }
TEST_CASE("Llama on one rank") { check_one_rank<models::BasicLlama<double>>("llama"); }
TEST_CASE("Llama with a tied head on one rank") { check_one_rank<models::BasicLlama<double>>("llama_tied"); }
#ifndef WEFT_GOLDEN_ONE_RANK
TEST_CASE("GPT over eight ranks") { check_eight_ranks<models::BasicGpt<double>>("gpt"); }
TEST_CASE("Llama over eight ranks") { check_eight_ranks<models::BasicLlama<double>>("llama"); }
TEST_CASE("Llama with a tied head over eight ranks") { check_eight_ranks<models::BasicLlama<double>>("llama_tied"); }
#endif
