// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models with low-rank adapters against one rank: losses, norms, gradients and values of the adapters in a layout, and a base
// that keeps its bits.

#include "support/parity.hpp"

#include <weft/nn/lora.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>

namespace weft_test {

inline LoraOptions adapters(std::vector<std::string> match) {
  return {.rank = 3, .alpha = 6, .dropout = 0.1, .match = std::move(match), .up_deviation = 0.1};
}

/// The results of a run, the same on every rank.
struct AdapterRun {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> gradients, values;
  bool base_kept = true;
};
template <class Model>
AdapterRun adapter_run_of(Model& model, std::size_t data_rank, std::size_t data_ranks, std::size_t micro_batches) {
  AdapterRun run;
  optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .clip = 1.0});
  std::map<std::string, std::vector<double>> base;
  std::vector<std::string> names;  // those of experts differ between ranks
  for (const std::string& name : model.parameter_names())
    if (name.find(".experts.") == name.npos) names.push_back(name);
  for (const std::string& name : names)
    if (!detail::is_adapter(name)) base[name] = model.parameter(name);
  for (int step = 0; step < 2; ++step) {
    run.losses.push_back(model.train_step(make_batch(step, data_rank, data_ranks, micro_batches)));
    if (step == 1)
      for (const std::string& name : names)
        if (detail::is_adapter(name)) run.gradients[name] = model.gradient(name);
    run.norms.push_back(optimizer.step().gradient_norm);
  }
  for (const std::string& name : names)
    if (detail::is_adapter(name)) run.values[name] = model.parameter(name);
    else run.base_kept = run.base_kept && model.parameter(name) == base.at(name);
  return run;
}

inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0, scale = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    scale = std::max(scale, std::abs(b[i]));
    most = std::max(most, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : INFINITY);
  }
  return most == 0 ? 0 : most / scale;
}
inline double relative_difference(const std::map<std::string, std::vector<double>>& a,
                                  const std::map<std::string, std::vector<double>>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& [name, values] : a) most = std::max(most, relative_difference(values, b.at(name)));
  return most;
}

struct AdaptedLayout {
  std::size_t world;
  Degrees degrees;
  std::size_t micro_batches;
  const char* schedule;
  int zero;
};

/// `adapted`: how many layers have an adapter.
template <class Composition, class Grid = Mesh<dp, cp, tp, pp>>
void check_adapters(const typename Composition::Config& config, const LoraOptions& lora, std::size_t adapted,
                    const std::vector<AdaptedLayout>& entries) {
  DefaultDevice device;
  SingleDevice<typename Composition::model_type> alone(device, config, {.lora = lora});
  const AdapterRun reference = adapter_run_of(alone, 0, 1, 1);
  CHECK(reference.base_kept);
  CHECK(reference.values.size() == 2 * adapted);
  for (const auto& [name, values] : reference.gradients) {
    INFO(name);
    CHECK(relative_difference(values, std::vector<double>(values.size())) > 0);
  }
  for (const AdaptedLayout& entry : entries) {
    INFO("world " << entry.world << ", tp " << entry.degrees.tp << ", cp " << entry.degrees.cp << ", ep " << entry.degrees.ep
                  << ", etp " << entry.degrees.etp << ", pp " << entry.degrees.pp << ", " << entry.schedule << ", ZeRO stage "
                  << entry.zero);
    AdapterRun first;
    const int code = runtime::run<comm::Threads>(runtime::RunOptions{.ranks = int(entry.world)}, [&](World& world) {
      Grid mesh(world, entry.degrees);
      ModelOptions options{.lora = lora};
      options.shard.stage = entry.zero;
      options.pipeline.schedule = schedule::choose(entry.schedule);
      Composition model(mesh, config, options);
      // Frozen parameters have no gradient and no memory for one.
      model.for_each_state([](ParameterState& state) {
        if (state.trainable() != detail::is_adapter(state.name())) throw Error("not frozen: " + state.name());
      });
      AdapterRun run = adapter_run_of(model, std::size_t(mesh.rank(dp{})), std::size_t(mesh.size(dp{})), entry.micro_batches);
      model.for_each_state([](ParameterState& state) {
        if (!state.trainable() && state.gradient()) throw Error("a gradient of the base: " + state.name());
      });
      if (world.rank() == 0) first = std::move(run);
    });
    CHECK(code == 0);
    CHECK(first.base_kept);
    CHECK(relative_difference(first.losses, reference.losses) <= 1e-12);
    CHECK(relative_difference(first.norms, reference.norms) <= 1e-12);
    CHECK(relative_difference(first.gradients, reference.gradients) <= 1e-12);
    CHECK(relative_difference(first.values, reference.values) <= 1e-12);
  }
}

}  // namespace weft_test
