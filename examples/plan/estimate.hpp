// SPDX-License-Identifier: Apache-2.0
#pragma once
// `plan estimate`: the time of a step, and its parts, from a rehearsal of the trainer's compositions.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include <weft/core/error.hpp>
#include <weft/core/output_file.hpp>
#include <weft/pipeline/schedule/visualise.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/machine_file.hpp>
#include <weft/runtime/guard.hpp>

#include "../04_train_gpt/rehearse.hpp"
#include "memory_options.hpp"
#include "options.hpp"
#include "run_options.hpp"

namespace plan {

struct EstimateOptions : MemoryOptions {
  std::string machine, svg;
};

inline void estimate_of_model(const EstimateOptions& o) {
  PlannedRun run = run_of(o);
  const weft::runtime::detail::KokkosGuard kokkos(std::min(weft::runtime::detail::cores(), weft::runtime::detail::most_threads));
  choose_stage_layers(run);
  weft::plan::Machine machine = weft::plan::detail::machine_of(o.machine, int(o.ranks_per_node.value_or(run.layout.world)));
  if (o.ranks_per_node) machine.ranks_per_node = int(weft::mesh_layout::positive("ranks-per-node", *o.ranks_per_node));
  const weft::plan::Estimate step =
      weft::plan::estimate({.ranks = int(run.layout.world), .threads = int(o.threads)}, machine,
                           [&](weft::World& world) { train_gpt::rehearse_steps(world, run.options, false); });
  if (!o.svg.empty())
    weft::detail::write_output("plan: --svg", o.svg, weft::schedule::to_svg(step.replayed.table, step.replayed.timeline, " s"));
  std::printf("%s", (o.json ? weft::plan::json_of(step) + "\n" : weft::plan::table_of(step)).c_str());
}

inline void add_estimate(CLI::App& app) {
  auto o = std::make_shared<EstimateOptions>();
  CLI::App* command = app.add_subcommand("estimate", "Seconds of a step on a machine, and their parts");
  command->add_option("--model", o->model, "gpt, llama or mixtral, with its sizes: a rehearsal of train_gpt's training steps");
  command->add_option("--machine", o->machine,
                      "a100, h100, h200, this (measured in a second), or a .json file (docs/planning.md)");
  add_run_options(command, *o);
  command->add_option("--precision", o->precision, "fp32, bf16 or fp16")->capture_default_str();
  add_count(command, "--threads", o->threads, "Threads of a rank")->capture_default_str();
  add_count(command, "--ranks-per-node", o->ranks_per_node, "Ranks per node, in place of the machine's");
  command->add_option("--svg", o->svg, "Draw the schedule with these durations into this file");
  command->add_flag("--json", o->json, "JSON instead of a table");
  o->precision = "bf16";
  command->callback([o, command] {
    require_option(command, "--model");
    require_option(command, "--machine");
    require_zero(*o);
    estimate_of_model(*o);
  });
}

}  // namespace plan
