// SPDX-License-Identifier: Apache-2.0
#pragma once
// `plan memory`: bytes a rank needs, by kind.

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
#include <weft/pipeline/schedule/named.hpp>
#include <weft/plan/step_simulation.hpp>

#include "options.hpp"
#include "print.hpp"

namespace plan {

struct MemoryOptions {
  std::optional<double> parameters, gradient_bytes;
  std::string model, precision, schedule, recompute = "none", context = "ring", offload = "none";
  weft::mesh_layout::Layout layout;
  std::optional<std::int64_t> vpp;
  std::int64_t layers = 6, width = 384, heads = 6, sequence = 256, vocabulary = 256, experts = 8, top_k = 2, zero = 0,
               replicate = 1, secondary = 0, threads = 1;
  std::optional<std::int64_t> kv_heads, intermediate, head_width;
  std::string attention_bias = "none";
  bool query_key_norm = false;
  bool sequence_parallel = false, tied = false, dropout = false, quantised_gather = false, float_gradients = false,
       reproducible = false, json = false;
};

inline std::string in_units(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit < 5; ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", bytes, units[unit]);
  return text;
}

inline nlohmann::ordered_json as_json(const weft::plan::Bytes& b) {
  const auto whole = [](double value) { return std::int64_t(std::llround(value)); };
  return {{"parameters", whole(b.parameters)},   {"gradients", whole(b.gradients)}, {"optimizer", whole(b.optimizer)},
          {"activations", whole(b.activations)}, {"buffers", whole(b.buffers)},     {"total", whole(b.total())}};
}

inline std::vector<std::string> as_row(const std::string& name, const weft::plan::Bytes& b) {
  return {name,
          in_units(b.parameters),
          in_units(b.gradients),
          in_units(b.optimizer),
          in_units(b.activations),
          in_units(b.buffers),
          in_units(b.total())};
}
inline const std::vector<std::string> memory_head = {"",        "parameters", "gradients", "optimizer", "activations",
                                                     "buffers", "total"};

inline void require_zero(const MemoryOptions& o) {
  if (o.zero < 0 || o.zero > 3)
    throw weft::LayoutError("zero(" + std::to_string(o.zero) + "): the stages of ZeRO are 0, 1, 2 and 3");
}

/// By the formulas, from a number of parameters.
inline void memory_of_parameters(const MemoryOptions& o) {
  if (!(*o.parameters >= 1) || !(*o.parameters < 1e18))
    throw weft::LayoutError("plan: --parameters must be a number of at least 1 and below 1e18");
  if (o.layout.tp != 1 || o.layout.pp != 1 || o.layout.cp != 1 || o.layout.ep != 1)
    throw weft::LayoutError(
        "plan: --parameters says nothing of what tp, pp, cp and ep cut: give --model and its sizes, or the parameters that one "
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
  if (o.json) return void(std::printf("%s\n", as_json(bytes).dump().c_str()));
  std::printf(
      "%g parameters, dp(%zu), ZeRO stage %d, %g + %g + %g bytes of parameter, gradient and optimizer; activations are not "
      "counted\n\n",
      *o.parameters, ranks, int(o.zero), element.value, element.gradient, element.optimizer);
  print({memory_head, as_row("each rank", bytes)});
}

inline weft::plan::ModelSizes sizes_of(const MemoryOptions& o) {
  using weft::mesh_layout::positive;
  using weft::plan::Architecture;
  const bool mixture = o.model == "mixtral";
  if (o.model != "gpt" && o.model != "llama" && !mixture)
    throw weft::UsageError("plan: unknown model '" + o.model + "'; the models are gpt, llama and mixtral");
  weft::plan::ModelSizes sizes{.architecture = mixture              ? Architecture::mixtral
                                               : o.model == "llama" ? Architecture::llama
                                                                    : Architecture::gpt,
                               .layers = positive("layers", o.layers),
                               .width = positive("width", o.width),
                               .heads = positive("heads", o.heads),
                               .kv_heads = o.kv_heads ? positive("kv heads", *o.kv_heads) : 0,
                               .intermediate = o.intermediate ? positive("intermediate", *o.intermediate) : 0,
                               .sequence = positive("sequence", o.sequence),
                               .vocabulary = positive("vocabulary", o.vocabulary),
                               .experts = positive("experts", o.experts),
                               .top_k = positive("top-k", o.top_k),
                               .head_width = o.head_width ? positive("head width", *o.head_width) : 0,
                               .query_key_value_bias = o.attention_bias != "none",
                               .output_bias = o.attention_bias == "all",
                               .query_key_norm = o.query_key_norm,
                               .tied = o.tied,
                               .dropout = o.dropout};
  for (const std::size_t size :
       {sizes.layers, sizes.width, sizes.sequence, sizes.vocabulary, sizes.intermediate, sizes.experts, sizes.head_width})
    if (size > std::size_t(1) << 24)
      throw weft::LayoutError("plan: a size of " + std::to_string(size) + ": sizes of a model are at most " +
                              std::to_string(std::size_t(1) << 24));
  if (!o.head_width)
    weft::mesh_layout::divides({"width", sizes.width}, {"heads", sizes.heads}, "a head has as many columns as another");
  if (o.attention_bias != "none" && o.attention_bias != "qkv" && o.attention_bias != "all")
    throw weft::UsageError("plan: unknown attention bias '" + o.attention_bias + "'; it can be none, qkv or all");
  if (sizes.architecture == Architecture::gpt && (o.head_width || o.query_key_norm || o.attention_bias != "none"))
    throw weft::UsageError("plan: --head-width, --attention-bias and --query-key-norm are llama's and mixtral's");
  if (mixture && sizes.top_k > sizes.experts)
    throw weft::LayoutError("top-k(" + std::to_string(sizes.top_k) + ") > experts(" + std::to_string(sizes.experts) +
                            "): a token goes to as many experts");
  if (o.intermediate && sizes.architecture == Architecture::gpt)
    throw weft::LayoutError("plan: --intermediate is llama's and mixtral's; gpt's MLP has 4 * width");
  return sizes;
}

/// By a rehearsal of a step, for a model and a layout.
inline void memory_of_model(MemoryOptions& o) {
  using weft::mesh_layout::number;
  using weft::mesh_layout::positive;
  const weft::plan::ModelSizes sizes = sizes_of(o);
  if (o.gradient_bytes)
    throw weft::UsageError(
        "plan: --gradient-bytes goes with --parameters; of a model, --float-gradients keeps those of stages 1 and 2 in fp32");
  weft::mesh_layout::Layout& l = o.layout;
  const bool mixture = sizes.architecture == weft::plan::Architecture::mixtral;
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
  using weft::plan::Recompute;
  if (o.recompute != "none" && o.recompute != "selective" && o.recompute != "full")
    throw weft::UsageError("plan: --recompute '" + o.recompute + "': it can be none, selective or full");
  if (o.offload.empty()) throw weft::UsageError("plan: --offload is empty: it can be none, host or the name of a file");
  if (o.context != "ring" && o.context != "ulysses")
    throw weft::UsageError("plan: --context '" + o.context + "': it can be ring or ulysses");
  const std::string schedule = o.schedule.empty() ? (o.vpp.value_or(1) > 1 ? "interleaved" : "1f1b") : o.schedule;
  const std::size_t chunks = o.vpp ? positive("vpp", *o.vpp) : 0;
  constexpr std::size_t most = 1 << 18;
  if (weft::mesh_layout::saturating_product({std::size_t(l.pp), resolved.micro_batches, chunks == 0 ? 2 : chunks}) > most)
    throw weft::LayoutError(number("pp", std::size_t(l.pp)) + " * " + number("micro-batches", resolved.micro_batches) +
                            " * vpp: a schedule has at most " + std::to_string(most) + " entries");
  constexpr std::size_t most_passes = 1 << 21;
  if (weft::mesh_layout::saturating_product({sizes.layers, resolved.micro_batches}) > most_passes)
    throw weft::LayoutError(number("layers", sizes.layers) + " * " + number("micro-batches", resolved.micro_batches) +
                            ": a rehearsal takes at most " + std::to_string(most_passes));
  const weft::schedule::Table table = weft::schedule::named_table(schedule, int(l.pp), int(resolved.micro_batches), int(chunks));
  if (std::size_t(table.stages()) > sizes.layers)
    throw weft::LayoutError(number("layers", sizes.layers) + " < " + number("pp", std::size_t(l.pp)) + " * " +
                            number("vpp", std::size_t(table.chunks)) + ": every stage holds at least one layer");
  weft::plan::StepLayout step{.dp = resolved.dp,
                              .tp = std::size_t(l.tp),
                              .pp = std::size_t(l.pp),
                              .cp = std::size_t(l.cp),
                              .ulysses = o.context == "ulysses",
                              .ep = std::size_t(l.ep),
                              .etp = std::size_t(*l.etp),
                              .edp = resolved.edp,
                              .micro_batches = resolved.micro_batches,
                              .micro_batch = std::size_t(l.micro_batch),
                              .zero = int(o.zero),
                              .replicate = positive("replicate", o.replicate),
                              .sharded = o.zero > 0,
                              .sequence_parallel = o.sequence_parallel,
                              .recompute = o.recompute == "full"        ? Recompute::full
                                           : o.recompute == "selective" ? Recompute::selective
                                                                        : Recompute::none,
                              .precision = o.precision.empty() ? "fp32" : o.precision,
                              .float_gradients = o.float_gradients,
                              .reproducible = o.reproducible,
                              .offload = o.offload != "none",
                              .quantised_gather = o.quantised_gather,
                              .secondary = o.secondary == 0 ? 0 : positive("secondary", o.secondary),
                              .threads = positive("threads", o.threads)};
  if (o.sequence_parallel)
    weft::mesh_layout::divides({"tokens of a micro-batch", step.micro_batch * sizes.sequence / step.cp}, {"tp", step.tp},
                               "sequence parallelism cuts the rows");
  const std::size_t middle = sizes.intermediate ? sizes.intermediate : (sizes.width * 8 / 3 + 63) / 64 * 64;
  if (sizes.architecture == weft::plan::Architecture::llama)
    weft::mesh_layout::divides({"intermediate", middle}, {"tp", step.tp}, "a rank holds as many columns as another");
  if (mixture) {
    weft::mesh_layout::divides({"experts", sizes.experts}, {"ep", step.ep}, "a rank holds whole experts");
    weft::mesh_layout::divides({"intermediate", middle}, {"etp", step.etp}, "an expert is cut evenly");
  }
  if (step.cp > 1 && sizes.sequence % (2 * step.cp) != 0)
    throw weft::LayoutError(number("sequence", sizes.sequence) + " % (2 * " + number("cp", step.cp) +
                            ") != 0: every rank holds two chunks of a sequence, one early and one late");
  if (step.cp > 1 && step.ulysses)
    weft::mesh_layout::divides({"heads / tp", sizes.heads / step.tp}, {"cp", step.cp},
                               "Ulysses gives every rank as many whole heads");
  weft::mesh_layout::divides({"dp", step.dp}, {"replicate", step.replicate}, "data ranks are grouped evenly");
  if (mixture)
    weft::mesh_layout::divides({"edp", step.edp}, {"replicate", step.replicate}, "the experts' data ranks are grouped evenly");
  if (step.replicate > 1 && step.zero == 0)
    throw weft::LayoutError(number("replicate", step.replicate) + " with zero(0): nothing is shared out; zero can be 1, 2 or 3");
  if (step.secondary > 0)
    weft::mesh_layout::divides({"dp / replicate", step.dp / step.replicate}, {"secondary", step.secondary},
                               "neighbours are groups of one size");
  weft::plan::element_bytes(step.precision);
  const std::vector<weft::plan::StageMemory> ranks = weft::plan::memory(sizes, step, table);
  const weft::plan::StageMemory* largest = &ranks.front();
  for (const auto& rank : ranks)
    if (rank.bytes.total() > largest->bytes.total()) largest = &rank;
  if (o.json) {
    nlohmann::ordered_json json = as_json(largest->bytes);
    auto& stages = json["stages"] = nlohmann::ordered_json::array();
    for (const auto& rank : ranks) {
      nlohmann::ordered_json one = {{"stages", rank.stages}};
      one.update(as_json(rank.bytes));
      stages.push_back(std::move(one));
    }
    return void(std::printf("%s\n", json.dump().c_str()));
  }
  std::printf("%s, dp(%zu) * cp(%zu) * tp(%zu) * pp(%zu)%s, ZeRO stage %d, %s, %s, %zu micro-batches of %zu sequences\n\n",
              o.model.c_str(), step.dp, step.cp, step.tp, step.pp,
              mixture ? (", experts edp(" + std::to_string(step.edp) + ") * ep(" + std::to_string(step.ep) + ") * etp(" +
                         std::to_string(step.etp) + ") * pp, tokens spread evenly")
                            .c_str()
                      : "",
              step.zero, step.precision.c_str(), schedule.c_str(), step.micro_batches, step.micro_batch);
  Rows rows = {memory_head};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::string name = "pp rank " + std::to_string(rank) + ", stages";
    for (const int stage : ranks[rank].stages) name += ' ' + std::to_string(stage);
    rows.push_back(as_row(name, ranks[rank].bytes));
  }
  if (ranks.size() > 1) rows.push_back(as_row("the largest", largest->bytes));
  print(rows);
}

inline void add_memory(CLI::App& app) {
  auto o = std::make_shared<MemoryOptions>();
  weft::mesh_layout::Layout& l = o->layout;
  CLI::App* command = app.add_subcommand("memory", "Bytes that a rank needs, by kind");
  CLI::Option* parameters =
      command->add_option("--parameters", o->parameters, "Number of parameters: ZeRO's formulas, without activations");
  CLI::Option* model =
      command->add_option("--model", o->model, "gpt, llama or mixtral, with its sizes: a rehearsal of a training step");
  parameters->excludes(model);
  add_count(command, "--layers", o->layers, "Layers")->capture_default_str();
  add_count(command, "--width", o->width, "Width of the hidden state")->capture_default_str();
  add_count(command, "--heads", o->heads, "Attention heads")->capture_default_str();
  add_count(command, "--kv-heads", o->kv_heads, "Key and value heads (default: heads)");
  add_count(command, "--head-width", o->head_width, "Of llama and mixtral (default: width / heads)");
  command->add_option("--attention-bias", o->attention_bias, "Of llama and mixtral: none, qkv (Qwen2) or all")
      ->capture_default_str();
  command->add_flag("--query-key-norm", o->query_key_norm, "Llama, mixtral: norms of queries and keys (Qwen3)");
  add_count(command, "--intermediate", o->intermediate,
            "Width of llama's MLP or of an expert (default: 8/3 of the width, in steps of 64)");
  add_count(command, "--sequence", o->sequence, "Tokens of a sequence")->capture_default_str();
  add_count(command, "--vocabulary", o->vocabulary, "Entries of the vocabulary")->capture_default_str();
  add_count(command, "--experts", o->experts, "Experts of a mixtral block")->capture_default_str();
  add_count(command, "--top-k", o->top_k, "Experts of a token")->capture_default_str();
  command->add_flag("--tied", o->tied, "Llama, mixtral: the last projection shares the embedding (GPT's always does)");
  command->add_flag("--dropout", o->dropout, "With dropout");
  add_count(command, "--world", l.world, "Number of ranks (default: dp * cp * tp * pp)");
  add_count(command, "--dp", l.dp, "Data parallel degree (default: what is left of the world)");
  add_count(command, "--tp", l.tp, "Tensor parallel degree")->capture_default_str();
  add_count(command, "--pp", l.pp, "Pipeline parallel degree")->capture_default_str();
  add_count(command, "--cp", l.cp, "Context parallel degree")->capture_default_str();
  add_count(command, "--ep", l.ep, "Expert parallel degree")->capture_default_str();
  add_count(command, "--etp", l.etp, "Tensor parallel degree of the experts (default: tp)");
  command->add_option("--context", o->context, "How cp attends: ring or ulysses")->capture_default_str();
  add_count(command, "--vpp", o->vpp, "Stages a rank (interleaved schedules)");
  command->add_option("--schedule", o->schedule,
                      "One of " + std::string(weft::schedule::names) + " (default: 1f1b, with --vpp interleaved)");
  add_count(command, "--zero", o->zero, "Stage of ZeRO")->capture_default_str();
  add_count(command, "--replicate", o->replicate, "Groups of data ranks that share out among themselves (hybrid sharding)")
      ->capture_default_str();
  command
      ->add_option("--offload", o->offload,
                   "Where optimizer state (with --zero 3 parameters too) lies between uses: none (the device), host or a file")
      ->capture_default_str();
  command->add_flag("--reproducible", o->reproducible,
                    "The same bits for every dp, stage of ZeRO, schedule and pp: micro-batches' gradients are kept apart");
  command->add_flag("--float-gradients", o->float_gradients, "Of 16-bit models, keep gradients in fp32 in stages 1 and 2 too");
  command->add_flag("--quantised-gather", o->quantised_gather, "Stage 3 gathers 8-bit integers (ZeRO++)");
  add_count(command, "--secondary", o->secondary, "Stage 3: so many neighbours keep gathered values (ZeRO++; 0: none)")
      ->capture_default_str();
  add_count(command, "--micro-batch", l.micro_batch, "Sequences of a micro-batch and rank")->capture_default_str();
  add_count(command, "--global-batch", l.global_batch, "Sequences a step (default: one micro-batch a dp rank)");
  command->add_option("--precision", o->precision,
                      "fp32, bf16, fp16 or fp64 (default: fp32 for a model; bf16 for --parameters, 2 + 2 + 12 bytes)");
  command->add_option("--gradient-bytes", o->gradient_bytes, "Of an element, with --parameters (default: as the precision)");
  command->add_flag("--sequence-parallel", o->sequence_parallel, "Shard the hidden state's rows over tp");
  command->add_option("--recompute", o->recompute, "none, selective or full")->capture_default_str();
  add_count(command, "--threads", o->threads, "Threads of a rank: attention has a workspace for each")->capture_default_str();
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
