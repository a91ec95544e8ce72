// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of `plan memory`, and the trainer's run for them.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/core/error.hpp>
#include <weft/mesh/layout.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/pipeline/schedule/named.hpp>
#include <weft/plan/memory.hpp>

#include "../04_train_gpt/options.hpp"
#include "../04_train_gpt/stage_layers.hpp"

namespace plan {

struct MemoryOptions {
  std::optional<double> parameters, gradient_bytes;
  std::string model, precision, schedule, pp_layers, recompute = "none", activations = "device", context = "ring",
                                                     offload = "none";
  weft::mesh_layout::Layout layout;
  std::optional<std::int64_t> vpp;
  std::int64_t layers = 6, width = 384, heads = 6, sequence = 256, vocabulary = 256, experts = 8, top_k = 2, zero = 0,
               replicate = 1, secondary = 0, quantised_reduce = 0, threads = 1, loss_chunks = 1;
  std::optional<std::int64_t> kv_heads, intermediate, head_width;
  std::optional<std::int64_t> ranks_per_node;
  std::string attention_bias = "none", memory;
  bool query_key_norm = false, elastic = false;
  bool sequence_parallel = false, tied = false, dropout = false, quantised_gather = false, float_gradients = false,
       reproducible = false, json = false;
};

/// Throws UsageError or LayoutError for an impossible model, or one without a compiled composition.
inline void require_model(const MemoryOptions& o) {
  using weft::mesh_layout::positive;
  const bool mixture = o.model == "mixtral";
  if (o.model != "gpt" && o.model != "llama" && !mixture)
    throw weft::UsageError("plan: unknown model '" + o.model + "'; the models are gpt, llama and mixtral");
  const std::int64_t none = 1;
  for (const auto& [name, value] :
       {std::pair("layers", o.layers), std::pair("width", o.width), std::pair("heads", o.heads),
        std::pair("kv heads", o.kv_heads.value_or(none)), std::pair("sequence", o.sequence),
        std::pair("vocabulary", o.vocabulary), std::pair("intermediate", o.intermediate.value_or(none)),
        std::pair("head width", o.head_width.value_or(none)), std::pair("experts", o.experts), std::pair("top-k", o.top_k)})
    if (const std::size_t size = positive(name, value); size > std::size_t(1) << 24)
      throw weft::LayoutError("plan: a size of " + std::to_string(size) + ": sizes of a model are at most " +
                              std::to_string(std::size_t(1) << 24));
  if (!o.head_width)
    weft::mesh_layout::divides({"width", std::size_t(o.width)}, {"heads", std::size_t(o.heads)},
                               "a head has as many columns as another");
  if (o.attention_bias != "none" && o.attention_bias != "qkv" && o.attention_bias != "all")
    throw weft::UsageError("plan: unknown attention bias '" + o.attention_bias + "'; it can be none, qkv or all");
  if (o.model == "gpt" && (o.head_width || o.query_key_norm || o.attention_bias != "none"))
    throw weft::UsageError("plan: --head-width, --attention-bias and --query-key-norm are llama's and mixtral's");
  if (mixture && o.top_k > o.experts)
    throw weft::LayoutError("top-k(" + std::to_string(o.top_k) + ") > experts(" + std::to_string(o.experts) +
                            "): a token goes to as many experts");
  if (o.intermediate && o.model == "gpt")
    throw weft::LayoutError("plan: --intermediate is llama's and mixtral's; gpt's MLP has 4 * width");
  weft::plan::element_bytes(o.precision.empty() ? "fp32" : o.precision);
  if (o.precision == "fp64")
    throw weft::UsageError("plan: --precision fp64: train_gpt has no composition in fp64, it has fp32, bf16 and fp16");
  if (o.precision == "fp16" && (o.model != "gpt" || o.sequence_parallel))
    throw weft::UsageError(
        "plan: --precision fp16: train_gpt's composition in fp16 is gpt without --sequence-parallel; bf16 has the same bytes");
}

inline void require_zero(const MemoryOptions& o) {
  if (o.zero < 0 || o.zero > 3)
    throw weft::LayoutError("zero(" + std::to_string(o.zero) + "): the stages of ZeRO are 0, 1, 2 and 3");
}

/// A run of the trainer, its schedule and its layout.
struct PlannedRun {
  train_gpt::Options options;
  weft::schedule::Table table;
  weft::mesh_layout::ResolvedLayout layout;
};

/// Throws UsageError or LayoutError for impossible options.
inline PlannedRun run_of(MemoryOptions o) {
  using weft::mesh_layout::number;
  using weft::mesh_layout::positive;
  require_model(o);
  if (o.gradient_bytes)
    throw weft::UsageError(
        "plan: --gradient-bytes goes with --parameters; of a model, --float-gradients keeps those of stages 1 and 2 in fp32");
  weft::mesh_layout::Layout& l = o.layout;
  const bool mixture = o.model == "mixtral";
  if (!mixture && (l.ep != 1 || l.etp.value_or(1) != 1))
    throw weft::LayoutError("plan: --ep and --etp place the experts of --model mixtral; " + o.model + " has none");
  if (!l.etp) l.etp = mixture ? l.tp : 1;
  if (!l.world) {
    const std::size_t dp = l.dp ? positive("dp", *l.dp) : 1;
    l.world = std::int64_t(weft::mesh_layout::product_of(
        "the world", {{"dp", dp}, {"tp", positive("tp", l.tp)}, {"cp", positive("cp", l.cp)}, {"pp", positive("pp", l.pp)}}));
  }
  l.heads = o.heads;
  l.kv_heads = o.kv_heads;
  l.sequence_parallel = o.sequence_parallel;
  if (o.zero != 3 && (o.quantised_gather || o.secondary != 0))
    throw weft::LayoutError(
        "zero(" + std::to_string(o.zero) +
        ") with --quantised-gather or --secondary: they change how stage 3 gathers; use --zero 3, or leave them out");
  const weft::mesh_layout::ResolvedLayout resolved = weft::mesh_layout::resolve(l);
  if (o.recompute != "none" && o.recompute != "selective" && o.recompute != "full")
    throw weft::UsageError("plan: --recompute '" + o.recompute + "': it can be none, selective or full");
  if (o.activations != "device" && o.activations != "host")
    throw weft::UsageError("plan: --activations '" + o.activations + "': it can be device or host");
  if (o.offload.empty()) throw weft::UsageError("plan: --offload is empty: it can be none, host or the name of a file");
  if (o.context != "ring" && o.context != "ulysses")
    throw weft::UsageError("plan: --context '" + o.context + "': it can be ring or ulysses");
  const std::string schedule = o.schedule.empty() ? (o.vpp.value_or(1) > 1 ? "interleaved" : "1f1b") : o.schedule;
  const std::size_t chunks = o.vpp ? positive("vpp", *o.vpp) : 0;
  constexpr std::size_t most = 1 << 18;
  if (weft::mesh_layout::saturating_product({std::size_t(l.pp), resolved.micro_batches, chunks == 0 ? 2 : chunks}) > most)
    throw weft::LayoutError(number("pp", std::size_t(l.pp)) + " * " + number("micro-batches", resolved.micro_batches) +
                            " * vpp: a schedule has at most " + std::to_string(most) + " entries");
  constexpr std::size_t most_passes = 1 << 17, most_layers = 1 << 14;
  if (weft::mesh_layout::saturating_product({std::size_t(o.layers), resolved.micro_batches}) > most_passes)
    throw weft::LayoutError(number("layers", std::size_t(o.layers)) + " * " + number("micro-batches", resolved.micro_batches) +
                            ": a rehearsal takes at most " + std::to_string(most_passes));
  if (weft::mesh_layout::saturating_product({std::size_t(o.layers), std::size_t(l.pp)}) > most_layers)
    throw weft::LayoutError(number("layers", std::size_t(o.layers)) + " * " + number("pp", std::size_t(l.pp)) +
                            ": each stage's rehearsal builds the model, which takes at most " + std::to_string(most_layers));
  const weft::schedule::Table table = weft::schedule::named_table(schedule, int(l.pp), int(resolved.micro_batches), int(chunks));
  train_gpt::Options run;
  run.program = "plan";
  run.pp_layers = o.pp_layers;
  if (const std::vector<std::size_t> counts = run.stage_layers(); !counts.empty())
    weft::mesh_layout::require_stage_layers(counts, std::size_t(o.layers), std::size_t(table.stages()));
  else if (std::size_t(table.stages()) > std::size_t(o.layers) && o.pp_layers.empty())
    throw weft::LayoutError(number("layers", std::size_t(o.layers)) + " < " + number("pp", std::size_t(l.pp)) + " * " +
                            number("vpp", std::size_t(table.chunks)) + ": every stage holds at least one layer");
  constexpr std::size_t most_ranks = 1 << 20;
  if (resolved.world > most_ranks)
    throw weft::LayoutError(number("world", resolved.world) + ": plan memory takes at most " + std::to_string(most_ranks) +
                            " ranks");
  const std::size_t tp = std::size_t(l.tp), cp = std::size_t(l.cp), dp = resolved.dp, sequence = std::size_t(o.sequence),
                    replicate = positive("replicate", o.replicate);
  if (o.sequence_parallel)
    weft::mesh_layout::divides({"tokens of a micro-batch", std::size_t(l.micro_batch) * sequence / cp}, {"tp", tp},
                               "sequence parallelism cuts the rows");
  const std::size_t middle = o.intermediate ? std::size_t(*o.intermediate) : (std::size_t(o.width) * 8 / 3 + 63) / 64 * 64;
  if (o.model == "llama")
    weft::mesh_layout::divides({"intermediate", middle}, {"tp", tp}, "a rank holds as many columns as another");
  if (mixture) {
    weft::mesh_layout::divides({"experts", std::size_t(o.experts)}, {"ep", std::size_t(l.ep)}, "a rank holds whole experts");
    weft::mesh_layout::divides({"intermediate", middle}, {"etp", std::size_t(*l.etp)}, "an expert is cut evenly");
  }
  if (cp > 1 && sequence % (2 * cp) != 0)
    throw weft::LayoutError(number("sequence", sequence) + " % (2 * " + number("cp", cp) +
                            ") != 0: every rank holds two chunks of a sequence, one early and one late");
  if (cp > 1 && o.context == "ulysses")
    weft::mesh_layout::divides({"heads / tp", std::size_t(o.heads) / tp}, {"cp", cp},
                               "Ulysses gives every rank as many whole heads");
  weft::mesh_layout::divides({"dp", dp}, {"replicate", replicate}, "data ranks are grouped evenly");
  if (mixture)
    weft::mesh_layout::divides({"edp", resolved.edp}, {"replicate", replicate}, "the experts' data ranks are grouped evenly");
  if (replicate > 1 && o.zero == 0)
    throw weft::LayoutError(number("replicate", replicate) + " with zero(0): nothing is shared out; zero can be 1, 2 or 3");
  if (o.secondary != 0)
    weft::mesh_layout::divides({"dp / replicate", dp / replicate}, {"secondary", positive("secondary", o.secondary)},
                               "neighbours are groups of one size");
  if (o.quantised_reduce != 0) {
    weft::mesh_layout::divides({"dp / replicate", dp / replicate},
                               {"quantised-reduce", positive("quantised-reduce", o.quantised_reduce)},
                               "nodes are groups of one size");
    if (o.zero == 0 || o.reproducible)
      throw weft::LayoutError(std::string("--quantised-reduce ") +
                              (o.zero == 0 ? "with zero(0): it sums gradients that are shared out; zero can be 1, 2 or 3"
                                           : "with --reproducible: sums as integers depend on the layout"));
  }
  positive("threads", o.threads);
  run.loss_chunks = std::int64_t(positive("loss-chunks", o.loss_chunks));
  run.vocabulary = o.vocabulary;
  run.ranks = l.world, run.dp = std::int64_t(dp);
  run.tp = l.tp, run.cp = l.cp, run.pp = l.pp, run.ep = l.ep, run.etp = l.etp;
  run.zero = o.zero, run.replicate = o.replicate, run.secondary = o.secondary, run.quantised_reduce = o.quantised_reduce;
  run.sequence_parallel = o.sequence_parallel, run.reproducible = o.reproducible;
  run.schedule = schedule, run.vpp = o.vpp, run.context = o.context, run.recompute = o.recompute, run.activations = o.activations;
  run.offload = o.offload;
  run.model = o.model, run.precision = o.precision.empty() ? "fp32" : o.precision;
  run.layers = o.layers, run.width = o.width, run.heads = o.heads, run.sequence = o.sequence;
  run.experts = o.experts, run.top_k = o.top_k, run.kv_heads = o.kv_heads;
  run.micro_batch = l.micro_batch;
  run.global_batch = std::int64_t(resolved.micro_batches * dp) * l.micro_batch;
  run.dropout = o.dropout ? 0.1 : 0;
  run.intermediate = o.intermediate.value_or(0), run.head_width = o.head_width.value_or(0);
  run.query_key_value_bias = o.attention_bias != "none", run.output_bias = o.attention_bias == "all";
  run.query_key_norm = o.query_key_norm, run.tied = o.tied;
  if (o.elastic) run.elastic = "1:" + std::to_string(*l.world);
  run.quantised_gather = o.quantised_gather, run.float_gradients = o.float_gradients;
  return {std::move(run), table, resolved};
}

/// Replaces `--pp-layers auto` by numbers. Kokkos is initialised.
inline void choose_stage_layers(PlannedRun& run) {
  if (run.options.pp_layers == "auto") run.options.pp_layers = train_gpt::numbers(train_gpt::layers_by_cost(run.options));
}

}  // namespace plan
