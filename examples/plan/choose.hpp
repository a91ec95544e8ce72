// SPDX-License-Identifier: Apache-2.0
#pragma once
// `plan choose`: the layout of a model on a cluster. It prints the decision tree's answer and the best layouts, from rehearsals
// of the trainer's compositions.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/plan/choose.hpp>
#include <weft/plan/choose_report.hpp>
#include <weft/plan/machine_file.hpp>
#include <weft/runtime/guard.hpp>

#include "../04_train_gpt/rehearse.hpp"
#include "../04_train_gpt/stage_layers.hpp"
#include "memory_options.hpp"
#include "options.hpp"
#include "run_options.hpp"

namespace plan {

struct ChooseOptions : MemoryOptions {
  std::string machine;
  double limit_s = 8;
  std::int64_t listed = 10;
};

inline weft::plan::Search search_of(const ChooseOptions& o, const train_gpt::Options& model) {
  const bool mixture = o.model == "mixtral";
  const std::int64_t middle = o.intermediate.value_or((o.width * 8 / 3 + 63) / 64 * 64);
  weft::plan::Search search;
  search.ranks = *o.layout.world, search.global_batch = *o.layout.global_batch;
  search.layers = o.layers, search.width = o.width, search.heads = o.heads, search.kv_heads = o.kv_heads.value_or(o.heads);
  search.sequence = o.sequence, search.vocabulary = o.vocabulary;
  search.columns = o.model == "gpt" ? 4 * o.width : middle;
  search.experts = mixture ? o.experts : 0;
  search.tied = o.model == "gpt" || o.tied;
  search.sequence_parallel = model.precision != "fp16";
  search.element_bytes = model.precision == "fp32" ? 4 : 2;
  search.loss_tokens = 2048;
  search.host_activations = true;
  if (!o.memory.empty()) search.memory = weft::runtime::bytes_of("plan: --memory", o.memory);
  return search;
}

/// The trainer's options for a layout, given the options of the model.
inline train_gpt::Options with_layout(train_gpt::Options run, const weft::plan::Candidate& c) {
  run.ranks = c.ranks(), run.dp = c.dp, run.tp = c.tp, run.cp = c.cp, run.pp = c.pp;
  run.ep = c.ep, run.etp = run.model == "mixtral" ? c.etp : 1;
  run.zero = c.zero, run.replicate = c.replicate, run.offload = c.offload ? "host" : "none";
  run.sequence_parallel = c.sequence_parallel;
  run.context = c.ulysses ? "ulysses" : "ring";
  run.schedule = weft::plan::name_of(c.order), run.recompute = weft::plan::name_of(c.kept);
  run.vpp.reset();
  if (weft::plan::takes_chunks(c.order)) run.vpp = c.chunks;
  run.micro_batch = c.micro_batch, run.loss_chunks = c.loss_chunks;
  run.activations = c.host_activations ? "host" : "device";
  run.global_batch = std::int64_t(c.dp) * c.micro_batch * c.micro_batches;
  return run;
}

inline std::string schedule_type_of(const train_gpt::Options& run) {
  const std::string chunks = '<' + std::to_string(run.vpp.value_or(1)) + '>';
  for (const auto& [name, type] :
       {std::pair("gpipe", std::string("GPipe")), std::pair("zb-h1", std::string("ZeroBubbleH1")),
        std::pair("zbv", std::string("Zbv")), std::pair("dualpipev", std::string("DualPipeV")),
        std::pair("interleaved", "Interleaved" + chunks), std::pair("interleaved-zb", "InterleavedZeroBubble" + chunks)})
    if (run.schedule == name) return "schedule::" + type;
  return "";  // one forward, one backward
}

/// The C++ type of the model in its wrappers; micro-batches, recomputation, offload, the place of activations and the loss' parts
/// are run-time options.
inline std::string type_of(const train_gpt::Options& run) {
  const std::string element = run.precision == "bf16" ? "bfloat16" : run.precision == "fp16" ? "float16" : "float";
  std::string type = (run.model == "gpt" ? "BasicGpt<" : run.model == "llama" ? "BasicLlama<" : "BasicMixtral<") + element + '>';
  type = "models::" + type;
  const auto wrap = [&](const std::string& wrapper, const std::string& policy = "") {
    type = wrapper + '<' + type + (policy.empty() ? "" : ", " + policy) + '>';
  };
  if (run.pp > 1) wrap("PipelineParallel", schedule_type_of(run));
  if (run.model == "mixtral" && run.ep * *run.etp > 1) wrap("ExpertParallel");
  if (run.tp > 1) wrap("TensorParallel", run.sequence_parallel ? "Shard<tp, 0>" : "");
  if (run.cp > 1) wrap("ContextParallel", run.context == "ulysses" ? "Ulysses" : "");
  if (run.zero > 0)
    wrap("FullyShardedDataParallel", "zero::Stage" + std::to_string(run.zero) +
                                         (run.replicate > 1 ? ", HybridSharding<" + std::to_string(run.replicate) + '>' : ""));
  else if (*run.dp > 1 || *run.ranks > 1) wrap("DataParallel");
  else wrap("SingleDevice");
  return type;
}

/// The trainer's command. The user must add token files.
inline std::string command_of(const train_gpt::Options& run) {
  std::string text = "./examples/run train_gpt --model " + run.model;
  const auto number = [&](const char* name, std::int64_t value, std::int64_t usual) {
    if (value != usual) (((text += " --") += name) += ' ') += std::to_string(value);
  };
  const auto word = [&](const char* name, const std::string& value, const char* usual) {
    if (value != usual) (((text += " --") += name) += ' ') += value;
  };
  constexpr std::int64_t always = -1;
  number("layers", run.layers, always), number("width", run.width, always), number("heads", run.heads, always);
  number("kv-heads", run.kv_heads.value_or(run.heads), run.heads);
  number("intermediate", run.intermediate, 0);
  if (run.model == "mixtral") number("experts", run.experts, always), number("top-k", run.top_k, always);
  number("sequence", run.sequence, always);
  if (run.vocabulary.value_or(256) != 256) text += " --data tokens.bin --vocabulary " + std::to_string(*run.vocabulary);
  if (run.dropout > 0) text += " --dropout 0.1";
  word("precision", run.precision, "fp32");
  word("optimizer", run.optimizer, "muon");
  number("ranks", *run.ranks, always), number("dp", *run.dp, 1), number("tp", run.tp, 1), number("cp", run.cp, 1);
  word("context", run.context, "ring");
  number("pp", run.pp, 1);
  word("schedule", run.schedule, "1f1b");
  if (run.vpp) number("vpp", *run.vpp, always);
  word("pp-layers", run.pp_layers, "");
  if (run.model == "mixtral") number("ep", run.ep, 1), number("etp", *run.etp, run.tp);
  number("zero", run.zero, 0), number("replicate", run.replicate, 1);
  word("offload", run.offload, "none");
  if (run.sequence_parallel) text += " --sequence-parallel";
  number("micro-batch", *run.micro_batch, always), number("global-batch", *run.global_batch, always);
  word("recompute", run.recompute, "none");
  word("activations", run.activations, "device");
  number("loss-chunks", run.loss_chunks, 1);
  std::string missing;
  for (const auto& [name, is] :
       {std::pair("--tied", run.tied && run.model != "gpt"), std::pair("--head-width", run.head_width > 0),
        std::pair("--attention-bias", run.query_key_value_bias), std::pair("--query-key-norm", run.query_key_norm)})
    if (is) missing += std::string(missing.empty() ? "  # train_gpt has no option for " : ", ") + name;
  return text + missing;
}

inline void choose_layout(const ChooseOptions& o) {
  using weft::mesh_layout::positive;
  constexpr std::size_t most_ranks = 1 << 20, most_batch = 1 << 24;
  for (const auto& [name, value, most] :
       {std::tuple("world", *o.layout.world, most_ranks), std::tuple("global-batch", *o.layout.global_batch, most_batch),
        std::tuple("ranks-per-node", o.ranks_per_node.value_or(1), most_ranks)})
    if (positive(name, value) > most)
      throw weft::LayoutError("plan: --" + std::string(name) + ' ' + std::to_string(value) + ": plan choose takes at most " +
                              std::to_string(most));
  if (!(o.limit_s > 0 && o.limit_s <= 3600)) throw weft::UsageError("plan: --limit: seconds from above 0 to 3600");
  MemoryOptions alone = o;
  alone.layout = {};
  const train_gpt::Options model = run_of(alone).options;
  weft::plan::Search search = search_of(o, model);
  const weft::runtime::detail::KokkosGuard kokkos(std::min(weft::runtime::detail::cores(), weft::runtime::detail::most_threads));
  const weft::plan::Machine machine = weft::plan::detail::machine_of(o.machine, int(o.ranks_per_node.value_or(search.ranks)));
  search.ranks_per_node = o.ranks_per_node.value_or(o.machine == "this" ? search.ranks : machine.ranks_per_node);
  const weft::plan::Chosen chosen = weft::plan::choose(search, machine,
                                                       {.train =
                                                            [&](weft::World& world, const weft::plan::Piece& piece) {
                                                              train_gpt::Options run = with_layout(model, piece.layout);
                                                              run.layers = piece.layers, run.vocabulary = piece.vocabulary;
                                                              run.pp_layers = train_gpt::numbers(piece.stage_layers);
                                                              train_gpt::rehearse_steps(world, std::move(run), false);
                                                            },
                                                        .names =
                                                            [&](const weft::plan::Piece& whole) {
                                                              train_gpt::Options run = with_layout(model, whole.layout);
                                                              run.pp_layers = train_gpt::numbers(whole.stage_layers);
                                                              return weft::plan::LayoutNames{type_of(run), command_of(run)};
                                                            },
                                                        .limit_s = o.limit_s,
                                                        .listed = positive("listed", o.listed)});
  std::printf("%s", (o.json ? weft::plan::json_of(chosen) + "\n" : weft::plan::table_of(chosen)).c_str());
}

inline void add_choose(CLI::App& app) {
  auto o = std::make_shared<ChooseOptions>();
  CLI::App* command = app.add_subcommand("choose", "The layouts that train a model fastest on a cluster");
  command->add_option("--model", o->model, "gpt, llama or mixtral, with its sizes: layouts of train_gpt are searched");
  command->add_option("--machine", o->machine,
                      "a100, h100, h200, this (measured in a second), or a .json file (docs/planning.md)");
  add_model_options(command, *o);
  add_count(command, "--world", o->layout.world, "Number of ranks");
  add_count(command, "--global-batch", o->layout.global_batch, "Sequences a step");
  command->add_option("--memory", o->memory, "Memory of a device, as 80GB (default: enough for any layout)");
  command->add_option("--precision", o->precision, "fp32, bf16 or fp16")->capture_default_str();
  add_count(command, "--ranks-per-node", o->ranks_per_node, "Ranks per node, in place of the machine's");
  command->add_option("--limit", o->limit_s, "Seconds that the search may take")->capture_default_str();
  add_count(command, "--listed", o->listed, "Layouts that are listed")->capture_default_str();
  command->add_flag("--json", o->json, "JSON instead of a table");
  o->precision = "bf16";
  command->callback([o, command] {
    for (const char* name : {"--model", "--machine", "--world", "--global-batch"}) require_option(command, name);
    choose_layout(*o);
  });
}

}  // namespace plan
