// SPDX-License-Identifier: Apache-2.0
#pragma once
// `plan memory`: bytes per rank, by kind, from ZeRO's formulas or from a rehearsal of the trainer's compositions.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <weft/mesh/layout.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/plan/memory.hpp>
#include <weft/runtime/guard.hpp>
#include <weft/runtime/rehearse.hpp>

#include "../04_train_gpt/rehearse.hpp"
#include "memory_advice.hpp"
#include "memory_options.hpp"
#include "options.hpp"
#include "print.hpp"
#include "run_options.hpp"

namespace plan {

inline std::string in_units(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit < 5; ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", bytes, units[unit]);
  return text;
}

/// Bytes of a rank. `activations` is all memory that is not kept between steps, at its peak, including buffers and gathered
/// parameters.
struct RankBytes {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, total = 0;
};
inline RankBytes bytes_of(const weft::RehearsedStage& stage) {
  using weft::MemoryCategory;
  const auto kept = [&](MemoryCategory category) { return double(stage.notes.kept.of(category)); };
  RankBytes bytes{kept(MemoryCategory::parameters), kept(MemoryCategory::gradients), kept(MemoryCategory::optimizer_state), 0,
                  double(stage.notes.peak)};
  bytes.activations = bytes.total - bytes.parameters - bytes.gradients - bytes.optimizer;
  return bytes;
}

inline nlohmann::ordered_json as_json(const RankBytes& b) {
  const auto whole = [](double value) { return std::int64_t(std::llround(value)); };
  return {{"parameters", whole(b.parameters)},
          {"gradients", whole(b.gradients)},
          {"optimizer", whole(b.optimizer)},
          {"activations", whole(b.activations)},
          {"total", whole(b.total)}};
}

/// By the formulas, from a number of parameters.
inline void memory_of_parameters(const MemoryOptions& o) {
  if (!(*o.parameters >= 1) || !(*o.parameters < 1e18))
    throw weft::LayoutError("plan: --parameters must be a number of at least 1 and below 1e18");
  if (o.layout.tp != 1 || o.layout.pp != 1 || o.layout.cp != 1 || o.layout.ep != 1)
    throw weft::LayoutError(
        "plan: --parameters does not show which parts tp, pp, cp and ep cut: give --model and its sizes, or the parameters that "
        "one "
        "of their ranks holds");
  const std::size_t dp = weft::mesh_layout::positive("dp", o.layout.dp.value_or(o.layout.world.value_or(1)));
  const std::size_t ranks = weft::mesh_layout::degree_left(
      "dp", o.layout.dp ? dp : 0, o.layout.world ? weft::mesh_layout::positive("world", *o.layout.world) : dp, {});
  weft::plan::ElementBytes element = weft::plan::element_bytes(o.precision.empty() ? "bf16" : o.precision);
  if (o.gradient_bytes) {
    if (!(*o.gradient_bytes > 0) || *o.gradient_bytes > 8)
      throw weft::LayoutError("plan: --gradient-bytes must be above 0 and at most 8");
    element.gradient = *o.gradient_bytes;
  }
  const weft::plan::Bytes bytes = weft::plan::zero_memory(*o.parameters, double(ranks), int(o.zero), element);
  if (o.json)
    return void(
        std::printf("%s\n", as_json({bytes.parameters, bytes.gradients, bytes.optimizer, 0, bytes.total()}).dump().c_str()));
  std::printf(
      "%g parameters, dp(%zu), ZeRO stage %d, %g + %g + %g bytes of parameter, gradient and optimizer; activations are not "
      "counted\n\n",
      *o.parameters, ranks, int(o.zero), element.value, element.gradient, element.optimizer);
  print(
      {{"", "parameters", "gradients", "optimizer", "total"},
       {"each rank", in_units(bytes.parameters), in_units(bytes.gradients), in_units(bytes.optimizer), in_units(bytes.total())}});
}

/// Rehearses all distinct ranks, with both peaks or only the larger one.
inline std::vector<weft::RehearsedStage> rehearse_run(const PlannedRun& run, const MemoryOptions& o, bool both) {
  return weft::rehearse_stages({.ranks = int(run.layout.world),
                                .both = both,
                                .threads = int(o.threads),
                                .ranks_per_node = int(o.ranks_per_node.value_or(0))},
                               [&](weft::World& world) { train_gpt::rehearse_steps(world, run.options, false); });
}

inline const weft::RehearsedStage& largest_of(const std::vector<weft::RehearsedStage>& stages) {
  return *std::max_element(stages.begin(), stages.end(), [](const weft::RehearsedStage& a, const weft::RehearsedStage& b) {
    return a.notes.peak < b.notes.peak;
  });
}

/// Throws MemoryError, with a remedy, unless all ranks fit.
inline void require_room(const std::vector<weft::RehearsedStage>& stages, const MemoryOptions& o) {
  const double memory = weft::runtime::bytes_of("plan: --memory", o.memory);
  const weft::RehearsedStage* const stage = weft::runtime::too_large(stages, memory);
  if (stage == nullptr) return;
  const auto largest_peak = [](const MemoryOptions& changed) -> std::optional<double> {
    try {
      PlannedRun run = run_of(changed);
      choose_stage_layers(run);
      return double(largest_of(rehearse_run(run, changed, false)).notes.peak);
    } catch (const weft::Error&) {
      return std::nullopt;  // an impossible layout
    }
  };
  throw weft::MemoryError("plan: out of memory: " + weft::runtime::need_text(*stage, memory) + "; " +
                          advice_for(o, memory, double(stage->notes.peak), largest_peak));
}

/// By a rehearsal of two steps, for a model and a layout.
inline void memory_of_model(const MemoryOptions& o) {
  PlannedRun run = run_of(o);
  if (o.ranks_per_node) weft::mesh_layout::positive("ranks-per-node", *o.ranks_per_node);
  const weft::runtime::detail::KokkosGuard kokkos(1);
  choose_stage_layers(run);
  std::vector<std::size_t> layers = run.options.stage_layers();
  if (layers.empty()) layers = weft::mesh_layout::even_layers(std::size_t(o.layers), std::size_t(run.table.stages()));
  const std::vector<weft::RehearsedStage> stages = rehearse_run(run, o, true);
  if (!o.memory.empty()) require_room(stages, o);
  const weft::RehearsedStage& largest = largest_of(stages);
  const weft::Rehearsal& notes = stages.front().notes;
  const auto with_least = [&](const weft::RehearsedStage& stage) {
    nlohmann::ordered_json json = as_json(bytes_of(stage));
    json["least_total"] = stage.least_peak;
    if (o.activations == "host") json["host_activations"] = stage.notes.host_activation_bytes;
    if (o.elastic) json["elastic_copies"] = stage.notes.elastic_bytes;
    return json;
  };
  if (o.json) {
    nlohmann::ordered_json json = with_least(largest);
    for (const weft::Rehearsal::Axis& axis : notes.axes)
      if (o.ranks_per_node) json["nodes"][axis.name] = notes.nodes_of(axis);
    auto& list = json["stages"] = nlohmann::ordered_json::array();
    for (const weft::RehearsedStage& stage : stages) {
      nlohmann::ordered_json one = {{"stages", run.table.stage_of[std::size_t(stage.stage)]}, {"rank", stage.rank}};
      for (const int held : run.table.stage_of[std::size_t(stage.stage)]) one["layers"].push_back(layers[std::size_t(held)]);
      one.update(with_least(stage));
      list.push_back(std::move(one));
    }
    return void(std::printf("%s\n", json.dump().c_str()));
  }
  const train_gpt::Options& r = run.options;
  std::printf("%s, dp(%zu) * cp(%d) * tp(%d) * pp(%d)%s, ZeRO stage %d, %s, %s, %zu micro-batches of %d sequences\n",
              r.model.c_str(), run.layout.dp, int(r.cp), int(r.tp), int(r.pp),
              r.model == "mixtral" ? (", experts edp(" + std::to_string(run.layout.edp) + ") * ep(" + std::to_string(r.ep) +
                                      ") * etp(" + std::to_string(*r.etp) + ") * pp, tokens spread evenly")
                                         .c_str()
                                   : "",
              int(r.zero), r.precision.c_str(), r.schedule.c_str(), run.layout.micro_batches, int(*r.micro_batch));
  for (const weft::Rehearsal::Axis& axis : notes.axes)
    if (o.ranks_per_node && axis.size > 1) {
      const std::size_t nodes = notes.nodes_of(axis);
      std::printf("%s(%zu) %s\n", axis.name.c_str(), axis.size,
                  nodes == 1 ? "stays in a node" : ("goes over " + std::to_string(nodes) + " nodes").c_str());
    }
  std::printf("\n");
  Rows rows = {{"", "parameters", "gradients", "optimizer", "activations, buffers", "total, at most", "at least"}};
  const auto add = [&](const std::string& name, const weft::RehearsedStage& stage) {
    const RankBytes b = bytes_of(stage);
    rows.push_back({name, in_units(b.parameters), in_units(b.gradients), in_units(b.optimizer), in_units(b.activations),
                    in_units(b.total), in_units(double(stage.least_peak))});
  };
  for (const weft::RehearsedStage& stage : stages) {
    std::string name = "pp rank " + std::to_string(stage.stage) + ", stages";
    for (const int held : run.table.stage_of[std::size_t(stage.stage)]) name += ' ' + std::to_string(held);
    name += stages.size() > 1 ? ", layers" : "";
    for (const int held : run.table.stage_of[std::size_t(stage.stage)])
      if (stages.size() > 1) name += ' ' + std::to_string(layers[std::size_t(held)]);
    add(name, stage);
  }
  if (stages.size() > 1) add("the largest", largest);
  print(rows);
  const auto most = [&](std::size_t weft::Rehearsal::*bytes) {
    std::size_t found = 0;
    for (const weft::RehearsedStage& stage : stages) found = std::max(found, stage.notes.*bytes);
    return in_units(double(found));
  };
  if (o.activations == "host")
    std::printf("\nactivations: they take %s of host memory on a rank\n", most(&weft::Rehearsal::host_activation_bytes).c_str());
  if (o.elastic)
    std::printf("\nelastic: the copies of two steps take %s of host memory on a rank\n",
                most(&weft::Rehearsal::elastic_bytes).c_str());
}

inline void add_memory(CLI::App& app) {
  auto o = std::make_shared<MemoryOptions>();
  CLI::App* command = app.add_subcommand("memory", "Bytes of a rank's memory, by kind");
  CLI::Option* parameters =
      command->add_option("--parameters", o->parameters, "Number of parameters: ZeRO's formulas, without activations");
  CLI::Option* model = command->add_option("--model", o->model,
                                           "gpt, llama or mixtral, with its sizes: a rehearsal of train_gpt's training steps");
  parameters->excludes(model);
  add_run_options(command, *o);
  command->add_option("--precision", o->precision,
                      "fp32, bf16 or fp16 (default: fp32 for a model; bf16 for --parameters, 2 + 2 + 12 bytes, or fp64)");
  command->add_option("--gradient-bytes", o->gradient_bytes,
                      "Bytes of a gradient's element, with --parameters (default: by the precision)");
  add_count(command, "--threads", o->threads, "Threads of a rank: attention has a workspace for each")->capture_default_str();
  command->add_option("--memory", o->memory, "Memory of a device, as 80GB: refuse a layout that does not fit, and name changes");
  add_count(command, "--ranks-per-node", o->ranks_per_node, "Show the axes that leave a node");
  command->add_flag("--elastic", o->elastic, "Show the host memory of the copies of train_gpt --elastic");
  command->add_flag("--json", o->json, "JSON instead of a table");
  command->callback([o, command] {
    require_zero(*o);
    if (o->parameters) {
      constexpr std::string_view taken[] = {"parameters", "dp",        "world",          "tp",  "pp", "cp", "ep",
                                            "zero",       "precision", "gradient-bytes", "json"};
      for (const CLI::Option* option : command->get_options())
        if (option->count() > 0 && std::find(std::begin(taken), std::end(taken), option->get_single_name()) == std::end(taken))
          throw weft::UsageError(
              "plan: --" + option->get_single_name() +
              " goes with --model: with --parameters only --dp, --zero, --precision and --gradient-bytes count");
      return memory_of_parameters(*o);
    }
    if (o->model.empty())
      throw weft::UsageError("plan: memory needs --parameters N, or --model gpt, llama or mixtral with its sizes");
    memory_of_model(*o);
  });
}

}  // namespace plan
