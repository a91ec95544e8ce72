// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of a model and its layout, which `plan memory`, `plan estimate` and `plan choose` share.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>

#include <weft/mesh/layout.hpp>
#include <weft/pipeline/schedule/named.hpp>

#include "memory_options.hpp"
#include "options.hpp"

namespace plan {

inline void add_model_options(CLI::App* command, MemoryOptions& o) {
  add_count(command, "--layers", o.layers, "Layers")->capture_default_str();
  add_count(command, "--width", o.width, "Width of the hidden state")->capture_default_str();
  add_count(command, "--heads", o.heads, "Attention heads (default: 6, or as many as divide the width)");
  add_count(command, "--kv-heads", o.kv_heads, "Key and value heads (default: heads)");
  add_count(command, "--head-width", o.head_width, "Head width of llama and mixtral (default: width / heads)");
  command->add_option("--attention-bias", o.attention_bias, "Biases of llama and mixtral: none, qkv (Qwen2) or all")
      ->capture_default_str();
  command->add_flag("--query-key-norm", o.query_key_norm, "Llama, mixtral: norms of queries and keys (Qwen3)");
  add_count(command, "--intermediate", o.intermediate,
            "Width of llama's MLP or of an expert (default: 8/3 of the width, in steps of 64)");
  add_count(command, "--sequence", o.sequence, "Tokens of a sequence")->capture_default_str();
  add_count(command, "--vocabulary", o.vocabulary, "Entries of the vocabulary")->capture_default_str();
  add_count(command, "--experts", o.experts, "Experts of a mixtral block")->capture_default_str();
  add_count(command, "--top-k", o.top_k, "Experts of a token (default: 2, or all of fewer)");
  command->add_flag("--tied", o.tied, "Llama, mixtral: the last projection shares the embedding (GPT's always does)");
  command->add_flag("--dropout", o.dropout, "Use dropout");
  command->parse_complete_callback([command, &o] {
    for (const std::string name : {"--experts", "--top-k"})
      if (command->count(name) > 0 && o.model != "mixtral") throw weft::UsageError("plan: " + name + " is of --model mixtral");
    if (command->count("--heads") == 0 && !o.head_width) o.heads = train_gpt::heads_for(o.width, o.heads, o.model != "gpt");
    if (command->count("--top-k") == 0) o.top_k = std::min(o.top_k, o.experts);
  });
}

inline void add_run_options(CLI::App* command, MemoryOptions& o) {
  add_model_options(command, o);
  weft::mesh_layout::Layout& l = o.layout;
  add_count(command, "--world", l.world, "Number of ranks (default: dp * cp * tp * pp)");
  add_count(command, "--dp", l.dp, "Data parallel degree (default: the remaining ranks)");
  add_count(command, "--tp", l.tp, "Tensor parallel degree")->capture_default_str();
  add_count(command, "--pp", l.pp, "Pipeline parallel degree")->capture_default_str();
  add_count(command, "--cp", l.cp, "Context parallel degree")->capture_default_str();
  add_count(command, "--ep", l.ep, "Expert parallel degree")->capture_default_str();
  add_count(command, "--etp", l.etp, "Tensor parallel degree of the experts (default: tp)");
  command->add_option("--context", o.context, "Attention over cp: ring or ulysses")->capture_default_str();
  add_count(command, "--vpp", o.vpp, "Stages per rank (interleaved schedules)");
  command->add_option("--schedule", o.schedule,
                      "One of " + std::string(weft::schedule::names) + " (default: 1f1b, with --vpp interleaved)");
  command->add_option("--pp-layers", o.pp_layers,
                      "Layers of each stage, as 7,8,8,7; auto: by rehearsed cost (default: numbers that differ by one at most)");
  add_count(command, "--zero", o.zero, "Stage of ZeRO")->capture_default_str();
  add_count(command, "--replicate", o.replicate, "Groups of data ranks, each of which shards among its own (hybrid sharding)")
      ->capture_default_str();
  command
      ->add_option("--offload", o.offload,
                   "Place of optimizer state (with --zero 3 also parameters) between uses: none (the device), host or a file")
      ->capture_default_str();
  command->add_flag("--reproducible", o.reproducible,
                    "The same bits for every dp, stage of ZeRO, schedule and pp: gradients of micro-batches stay separate");
  command->add_flag("--float-gradients", o.float_gradients, "Keep gradients of 16-bit models in fp32 also in stages 1 and 2");
  command->add_flag("--quantised-gather", o.quantised_gather, "Stage 3 gathers 8-bit integers (ZeRO++)");
  add_count(command, "--secondary", o.secondary, "Stage 3: number of neighbours that keep gathered values (ZeRO++; 0: none)")
      ->capture_default_str();
  add_count(command, "--quantised-reduce", o.quantised_reduce,
            "Sum gradients as 8-bit integers, in nodes of this many data ranks and then between nodes (ZeRO++; 0: in float)")
      ->capture_default_str();
  add_count(command, "--micro-batch", l.micro_batch, "Sequences of a micro-batch and rank")->capture_default_str();
  add_count(command, "--global-batch", l.global_batch, "Sequences of a step (default: one micro-batch per dp rank)");
  command->add_flag("--sequence-parallel", o.sequence_parallel, "Shard the hidden state's rows over tp");
  command->add_option("--recompute", o.recompute, "none, selective or full")->capture_default_str();
  command
      ->add_option("--activations", o.activations,
                   "Place of the blocks' activations between forward and backward: device or host")
      ->capture_default_str();
  add_count(command, "--loss-chunks", o.loss_chunks, "Parts of a micro-batch's tokens whose logits are in memory one by one")
      ->capture_default_str();
}

}  // namespace plan
