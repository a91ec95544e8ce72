// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parity matrix for models on any batch: losses, every gradient, norms and evaluations of each layout compared with one rank.
// In addition to the usual members, a model needs a Config and a static make_batch(config, step, rank, ranks, micro_batches).
//
//   check_layouts_of<MyModel>(MyModel::Config{}, field_layouts);

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <weft/weft.hpp>

#include "support/matrix.hpp"

namespace weft_test {

/// Every axis that shards a model on fields, alone and combined, with schedules and stages of ZeRO.
inline const std::vector<MatrixEntry> field_layouts = {
    {1, {}, 1},
    {1, {}, 4},
    {2, {}, 2, "1f1b", 0},
    {2, {}, 4, "1f1b", 1},
    {4, {}, 2, "1f1b", 2},
    {4, {}, 1, "1f1b", 3},
    {8, {}, 1, "1f1b", 3},
    {2, {.tp = 2}, 2},
    {4, {.tp = 4}, 1},
    {4, {.tp = 2}, 2, "1f1b", 1},
    {4, {.tp = 2}, 2, "1f1b", 3},
    {8, {.tp = 4}, 2, "1f1b", 2},
    {2, {.pp = 2}, 4, "gpipe"},
    {2, {.pp = 2}, 4, "1f1b"},
    {2, {.pp = 2}, 4, "interleaved"},
    {2, {.pp = 2}, 4, "zb-h1"},
    {2, {.pp = 2}, 4, "zbv"},
    {2, {.pp = 2}, 4, "dualpipev"},
    {4, {.pp = 4}, 4, "1f1b"},
    {4, {.pp = 2}, 4, "zb-h1", 3},
    {4, {.pp = 2}, 2, "interleaved", 2},
    {4, {.tp = 2, .pp = 2}, 4, "zbv"},
    {8, {.tp = 2, .pp = 2}, 4, "zbv", 1},
    {8, {.tp = 2, .pp = 2}, 4, "1f1b", 3},
    {8, {.tp = 2, .pp = 4}, 4, "zb-h1"},
    {8, {.pp = 4}, 2, "gpipe", 2},
};

/// True if a model has predictions.
template <class Model>
inline constexpr bool predicts = requires {
  Model::predicts;
};

/// True if a model's results depend on the division of samples into micro-batches, as with BatchNorm. Its make_batch then uses
/// the same samples in micro-batch i for any number of ranks, and the reference has as many micro-batches as the layout.
template <class Model>
inline constexpr bool normalises_micro_batches = requires {
  Model::normalises_micro_batches;
};

struct FieldReference {
  std::vector<double> losses, norms, evaluations;
  Prediction prediction;  // of models that predict
  std::vector<std::map<std::string, std::vector<double>>> gradients;
};

template <class Model>
FieldReference field_reference(const typename Model::Config& config, std::size_t micro_batches) {
  FieldReference reference;
  DefaultDevice device;
  SingleDevice<Model> model(device, config);
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  for (int step = 0; step < Reference::steps; ++step) {
    const auto batch = Model::make_batch(config, std::uint64_t(step), 0, 1, micro_batches);
    reference.losses.push_back(model.train_step(batch));
    auto& gradients = reference.gradients.emplace_back();
    for (const std::string& name : model.parameter_names()) gradients[name] = model.gradient(name);
    reference.norms.push_back(optimizer.step().gradient_norm);
    reference.evaluations.push_back(model.evaluate(batch));
  }
  if constexpr (predicts<Model>) reference.prediction = model.predict(Model::make_batch(config, 9, 0, 1, 1));
  return reference;
}

/// The largest difference of one rank of a composition, relative to the largest value of its kind.
template <class Composition, class Mesh>
double field_difference(const Mesh& mesh, const MatrixEntry& entry, const typename Composition::Config& config,
                        const FieldReference& reference, std::string& worst) {
  using Model = typename Composition::model_type;
  ModelOptions options;
  options.shard.stage = entry.zero;
  options.pipeline.schedule = schedule::choose(entry.schedule);
  Composition model(mesh, config, options);
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  double largest = 0;
  const auto compare = [&](double a, double b, double scale, const std::string& what) {
    const double error = a == b ? 0 : !std::isfinite(a) ? INFINITY : std::abs(a - b) / scale;
    if (error > largest) worst = what;
    largest = std::max(largest, error);
  };
  for (int step = 0; step < Reference::steps; ++step) {
    const std::size_t at = std::size_t(step);
    const auto batch = Model::make_batch(config, std::uint64_t(step), std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})),
                                         entry.micro_batches);
    compare(model.train_step(batch), reference.losses[at], reference.losses[at], "loss");
    CHECK(model.parameter_names().size() == reference.gradients[at].size());
    for (const auto& [name, expected] : reference.gradients[at]) {
      double scale = 0;
      for (const double value : expected) scale = std::max(scale, std::abs(value));
      CHECK(scale > 0);  // every parameter takes part
      const std::vector<double> values = model.gradient(name);
      REQUIRE(values.size() == expected.size());
      for (std::size_t i = 0; i < values.size(); ++i) compare(values[i], expected[i], scale, name);
    }
    compare(optimizer.step().gradient_norm, reference.norms[at], reference.norms[at], "norm");
    compare(model.evaluate(batch), reference.evaluations[at], reference.evaluations[at], "evaluation");
  }
  if constexpr (predicts<Model>) {
    auto batch = Model::make_batch(config, 9, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), 1);
    batch.micro_batches = entry.micro_batches;
    const Prediction whole = model.predict(batch, Gather::whole), share = model.predict(batch);
    const Prediction& expected = reference.prediction;
    REQUIRE(whole.shape == expected.shape);
    REQUIRE(whole.values.size() == expected.values.size());
    for (std::size_t i = 0; i < whole.values.size(); ++i) compare(whole.values[i], expected.values[i], 1, "prediction");
    REQUIRE(share.shape[0] * std::size_t(mesh.size(dp{})) == whole.shape[0]);
    for (std::size_t i = 0; i < share.values.size(); ++i)
      compare(share.values[i], expected.values[std::size_t(mesh.rank(dp{})) * share.values.size() + i], 1,
              "share of a prediction");
  }
  return largest;
}

template <class Model>
using TensorLayout = FullyShardedDataParallel<TensorParallel<PipelineParallel<Model>>>;
template <class Model>
using SequenceLayout = FullyShardedDataParallel<SequenceParallel<PipelineParallel<Model>>>;

/// Each layout against one rank, in fp64, to 1e-12. Returns the number of layouts.
template <class Composition, class Axes = Mesh<dp, tp, pp>>
std::size_t check_layouts_of(const typename Composition::Config& config, const std::vector<MatrixEntry>& layouts) {
  using Model = typename Composition::model_type;
  static_assert(std::is_same_v<typename Model::scalar, double>);
  std::map<std::size_t, FieldReference> references;  // by the number of micro-batches
  for (const MatrixEntry& entry : layouts) {
    const std::size_t micro_batches = normalises_micro_batches<Model> ? entry.micro_batches : 1;
    if (!references.contains(micro_batches)) references.emplace(micro_batches, field_reference<Model>(config, micro_batches));
    const FieldReference& reference = references.at(micro_batches);
    std::mutex mutex;
    double largest = 0;
    std::string worst;
    const int code = runtime::run(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
      Axes mesh(world, entry.degrees);
      std::string mine;
      const double difference = field_difference<Composition>(mesh, entry, config, reference, mine);
      std::lock_guard lock(mutex);
      if (difference > largest) worst = mine;
      largest = std::max(largest, difference);
    });
    INFO("world " << entry.world << ", tp(" << entry.degrees.tp << ") pp(" << entry.degrees.pp << "), " << entry.schedule
                  << ", ZeRO " << entry.zero << ", micro-batches " << entry.micro_batches << ", worst " << worst);
    CHECK(code == 0);
    CHECK(largest <= 1e-12);
  }
  return layouts.size();
}

}  // namespace weft_test
