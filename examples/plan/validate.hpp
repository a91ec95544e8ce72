// SPDX-License-Identifier: Apache-2.0
#pragma once
// `plan validate`: checks a model against a layout, and prints the numbers inferred from it.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>
#include <string>

#include <weft/mesh/layout.hpp>
#include <weft/mesh/stage_layers.hpp>

#include "options.hpp"
#include "print.hpp"

namespace plan {

inline void add_validate(CLI::App& app) {
  struct Options {
    weft::mesh_layout::Layout layout;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  weft::mesh_layout::Layout& l = o->layout;
  CLI::App* command = app.add_subcommand("validate", "Whether a model fits a layout");
  add_count(command, "--nodes", l.nodes, "Number of nodes")->capture_default_str();
  add_count(command, "--ranks-per-node", l.ranks_per_node, "Ranks of each node, which must be given");
  add_count(command, "--tp", l.tp, "Tensor parallel degree")->capture_default_str();
  add_count(command, "--etp", l.etp, "Tensor parallel degree of the experts (default: tp)");
  add_count(command, "--cp", l.cp, "Context parallel degree")->capture_default_str();
  add_count(command, "--ep", l.ep, "Expert parallel degree")->capture_default_str();
  add_count(command, "--pp", l.pp, "Pipeline parallel degree")->capture_default_str();
  add_count(command, "--vpp", l.vpp, "Stages per rank")->capture_default_str();
  add_count(command, "--world", l.world, "Number of ranks (default: nodes * ranks per node)");
  add_count(command, "--dp", l.dp, "Data parallel degree (default: the remaining ranks)");
  add_count(command, "--edp", l.edp, "Data parallel degree of the experts (default: the remaining ranks)");
  add_count(command, "--global-batch", l.global_batch, "Sequences of a step (default: one micro-batch per dp rank)");
  add_count(command, "--micro-batch", l.micro_batch, "Sequences of a micro-batch and rank")->capture_default_str();
  add_count(command, "--layers", l.layers, "Layers of the model");
  add_count(command, "--heads", l.heads, "Attention heads");
  add_count(command, "--kv-heads", l.kv_heads, "Key and value heads (default: heads)");
  add_count(command, "--experts", l.experts, "Experts of a mixture");
  add_count(command, "--intermediate", l.intermediate, "Width inside an expert");
  command->add_flag("--sequence-parallel", l.sequence_parallel, "Shard the sequence over tp");
  command->add_flag("--overlap-p2p", l.overlap_p2p, "Overlap messages between stages with computing");
  command->add_flag("--json", o->json, "JSON instead of a table");
  command->callback([o, command] {
    require_option(command, "--ranks-per-node");
    const weft::mesh_layout::ResolvedLayout r = weft::mesh_layout::resolve(o->layout);
    if (o->json) {
      std::printf("%s\n",
                  nlohmann::ordered_json{{"dp", r.dp}, {"edp", r.edp}, {"micro_batches", r.micro_batches}}.dump().c_str());
      return;
    }
    Rows rows = {{"world", std::to_string(r.world)},
                 {"dp", std::to_string(r.dp)},
                 {"edp", std::to_string(r.edp)},
                 {"micro-batches", std::to_string(r.micro_batches) + " a step"}};
    if (!r.stage_layers.empty())
      rows.push_back(
          {"layers", weft::mesh_layout::counts_text(r.stage_layers) + (r.stage_layers.size() > 1 ? " in the stages" : "")});
    if (r.kv_replicas > 1) rows.push_back({"key and value heads", "each on " + std::to_string(r.kv_replicas) + " ranks of tp"});
    print(rows);
  });
}

}  // namespace plan
