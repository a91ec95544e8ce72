// SPDX-License-Identifier: Apache-2.0
// The command line: every option with its range. An invalid value throws UsageError with one line.

#include "options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

#include <weft/core/error.hpp>
#include <weft/optim/trainable.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/runtime/rehearse.hpp>

#include "../command_line.hpp"
#include "sample.hpp"

namespace train_gpt {

namespace {

/// A schedule of weft, or a file, whose contents are checked once the layout is known.
CLI::Validator schedule_name() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        if (text.ends_with(".csv")) return "";
        try {
          weft::schedule::choose(text);
          return "";
        } catch (const weft::UsageError&) {
          return "'" + text + "' is not one of " + std::string(weft::schedule::names) + ", and no .csv file";
        }
      },
      "NAME");
}

/// Checks that all files are of one kind by their names, and takes --validation in place of --validation-fraction.
void require_kinds(Options& o, bool fraction_given) {
  const std::string who = o.program + ": ";
  const auto kind_of = [](const std::string& file) {
    return file.ends_with(".jsonl") ? "conversations" : file.ends_with(".bin") ? "tokens" : "text";
  };
  const bool conversations = o.of_conversations();
  for (const auto& [name, files] : {std::pair("--data ", &o.data), std::pair("--validation ", &o.validation)})
    for (const std::string& file : *files)
      if (file.ends_with(".jsonl") != conversations)
        throw weft::UsageError(who + name + file + " has " + kind_of(file) + " by its name, and " +
                               (o.data.empty() ? "weft's text" : "--data " + o.data.front()) + " has " +
                               (o.data.empty() ? "text" : kind_of(o.data.front())) + ": all files of a run are of one kind");
  if (o.validation.empty()) return;
  const auto trained_on = [&](const std::string& kind) {
    return o.data.empty()
               ? kind == "text"
               : std::any_of(o.data.begin(), o.data.end(), [&](const std::string& file) { return kind_of(file) == kind; });
  };
  for (const std::string& file : o.validation)
    if (!trained_on(kind_of(file)))
      throw weft::UsageError(who + "--validation " + file + " has " + kind_of(file) +
                             " by its name, and no file of --data has: all " + "files of a run are of one kind");
  if (fraction_given && o.validation_fraction > 0)
    throw weft::UsageError(who + "--validation-fraction beside --validation: sets replace the ends of the files; leave one out");
  o.validation_fraction = 0;
  for (std::size_t i = 0; i < o.validation.size(); ++i)
    if (std::find(o.validation.begin(), o.validation.begin() + std::ptrdiff_t(i), o.validation[i]) !=
        o.validation.begin() + std::ptrdiff_t(i))
      throw weft::UsageError(who + "--validation names " + o.validation[i] + " twice");
}

}  // namespace

std::vector<std::size_t> Options::stage_layers() const {
  std::vector<std::size_t> layers;
  if (pp_layers.empty() || pp_layers == "auto") return layers;
  const char* const end = pp_layers.data() + pp_layers.size();
  for (const char* at = pp_layers.data();; ++at) {
    std::size_t count = 0;
    const auto [rest, error] = std::from_chars(at, end, count);
    if (error != std::errc() || (rest != end && *rest != ','))
      throw weft::UsageError(program + ": --pp-layers '" + pp_layers + "': whole numbers with commas between them, or auto");
    layers.push_back(count);
    if (rest == end) return layers;
    at = rest;
  }
}

Options::Range Options::elastic_range() const {
  Range range{0, 0};
  const char* const end = elastic.data() + elastic.size();
  const auto first = std::from_chars(elastic.data(), end, range.least);
  const bool parted = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto second = parted ? std::from_chars(first.ptr + 1, end, range.most) : first;
  constexpr std::int64_t most_ranks = 1 << 20;
  if (!parted || second.ec != std::errc() || second.ptr != end || range.least < 1 || range.most < 1 || range.most > most_ranks)
    throw weft::UsageError(program + ": --elastic '" + elastic +
                           "': write MIN:MAX, the least and the most ranks that train, as 2:4");
  if (range.least > range.most)
    throw weft::UsageError(program + ": --elastic " + elastic +
                           ": the least number of ranks is above the most: write --elastic " + std::to_string(range.most) + ":" +
                           std::to_string(range.least));
  return range;
}

std::string Options::weights_text() const {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);  // two different weights have different texts
  for (std::size_t i = 0; i < weights.size(); ++i) text << (i == 0 ? "" : ",") << weights[i];
  return text.str();
}

std::optional<Options> parse(const Options& defaults, int argc, char** argv) {
  Options o = defaults;
  using command_line::number;
  using command_line::whole;
  const std::string who = o.program + ": ";
  CLI::App app(
      std::string(o.finetunes ? "Fine-tunes a model of Hugging Face, on text or token files"
                              : "Trains a language model, byte-level or on token files") +
          ", over a mesh of ranks: thread ranks, or those that mpirun or srun started.\n"
          "With the same seed the data, the initial weights and so the losses are those of one rank, whatever the layout.",
      o.program);
  constexpr std::int64_t most = 1 << 30, most_ranks = 1 << 20;
  app.add_option("--data", o.data,
                 "Text files (default: weft's own headers and documents), with --vocabulary token files, or with --tokenizer "
                 "conversations (.jsonl)")
      ->expected(1, -1)
      ->type_name("FILE...");
  app.add_option("--weights", o.weights,
                 "Weights of the token files in --data: their shares of all samples (default: their numbers of windows)")
      ->expected(1, -1)
      ->type_name("W...");
  app.add_option("--vocabulary", o.vocabulary,
                 "--data are token files (.bin, as nanoGPT and llm.c write them), with tokens below it (GPT-2: 50257)")
      ->check(whole(1, std::numeric_limits<std::int32_t>::max()));
  app.add_option(
         "--token-type", o.token_type,
         "Type of token files; auto: from the file's header; without one uint32 if --vocabulary is above 65536 or every second "
         "word of 16 bits is 0, else uint16")
      ->check(CLI::IsMember({"auto", "uint16", "uint32"}))
      ->capture_default_str();
  app.add_option("--tokenizer", o.tokenizer,
                 "tokenizer.json of conversations, or its folder (default: that of --load); a line of a .jsonl file is "
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}")
      ->type_name("FILE");
  app.add_option("--chat", o.chat, "Template of conversations; auto: the one whose special tokens the tokenizer has")
      ->check(CLI::IsMember({"auto", "chatml", "llama3"}))
      ->capture_default_str();
  app.add_option("--learned", o.learned, "Roles of conversations whose contents the model learns to write")
      ->expected(1, -1)
      ->type_name("ROLE...")
      ->capture_default_str();
  app.add_flag("--cut", o.cut, "Cut the ends of conversations that are longer than a sequence, in place of an error");
  app.add_option("--balance-cp", o.balance_cp,
                 "Order the conversations of a sequence so that N ranks of cp have about equal work")
      ->check(whole(1, most_ranks))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--output", o.output,
                 "Folder for metrics.jsonl, loss.svg, layout.json, sample.txt; with --pp also timeline.svg and timeline.json")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Seed of data, initial weights, dropout and the sample")
      ->check(whole(0))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "Number of optimizer steps")->check(whole(1, most))->capture_default_str();

  const char* mesh = "Layout";
  app.add_option("--ranks", o.ranks, "Thread ranks (default: the product of the degrees, else 2); under a launcher its world")
      ->check(whole(1, most_ranks))
      ->group(mesh);
  app.add_option("--dp", o.dp, "Data parallel degree (default: the remaining ranks)")->check(whole(1, most_ranks))->group(mesh);
  app.add_option("--tp", o.tp, "Tensor parallel degree")->check(whole(1, most_ranks))->capture_default_str()->group(mesh);
  app.add_option("--pp", o.pp, "Pipeline parallel degree")->check(whole(1, most_ranks))->capture_default_str()->group(mesh);
  app.add_option("--cp", o.cp, "Context parallel degree: ranks that share every sequence")
      ->check(whole(1, most_ranks))
      ->capture_default_str()
      ->group(mesh);
  app.add_option("--context", o.context, "Attention over cp: keys and values go round a ring, or ranks exchange tokens for heads")
      ->check(CLI::IsMember({"ring", "ulysses"}))
      ->capture_default_str()
      ->group(mesh);
  app.add_option("--ep", o.ep, "Expert parallel degree (--model mixtral)")
      ->check(whole(1, most_ranks))
      ->capture_default_str()
      ->group(mesh);
  app.add_option("--etp", o.etp, "Tensor parallel degree inside an expert (default: that of --tp)")
      ->check(whole(1, most_ranks))
      ->group(mesh);
  app.add_option("--schedule", o.schedule,
                 "Schedule of the pipeline: " + std::string(weft::schedule::names) + ", or a CSV file of your own")
      ->check(schedule_name())
      ->capture_default_str()
      ->group(mesh);
  app.add_option("--vpp", o.vpp, "Stages per rank (interleaved, interleaved-zb; default: 2)")
      ->check(whole(1, most_ranks))
      ->group(mesh);
  app.add_option(
         "--pp-layers", o.pp_layers,
         "Layers of each stage, as 7,8,8,7, in the order of the model; auto: by rehearsed cost, since the first stage also "
         "has the embedding and the last the head (default: numbers that differ by one at most)")
      ->type_name("NUMBERS")
      ->group(mesh);
  app.add_option("--zero", o.zero,
                 "Stage of ZeRO, sharded over data ranks: 0 nothing, 1 optimizer state, 2 also gradients, 3 also parameters")
      ->check(whole(0, 3))
      ->capture_default_str()
      ->group(mesh);
  app.add_option("--replicate", o.replicate, "Copies of the shards of --zero: number of groups of data ranks")
      ->check(whole(1, most_ranks))
      ->capture_default_str()
      ->group(mesh);
  app.add_option("--offload", o.offload,
                 "Place of optimizer state (with --zero 3 also parameters) between uses: none (the device), host (memory), or "
                 "the stem of a file for each rank")
      ->type_name("none|host|FILE")
      ->capture_default_str()
      ->group(mesh);
  app.add_flag("--sequence-parallel", o.sequence_parallel, "Shard the hidden state between blocks over tp")->group(mesh);
  app.add_option("--piece-bytes", o.piece_bytes,
                 "Sums over tp follow their products, and products the gathers of sequence parallelism, in up to 8 pieces of at "
                 "least this many bytes, such as 1048576, and overlap with them; 0: whole messages")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(mesh);
  app.add_option(
         "--loss-chunks", o.loss_chunks,
         "Parts of a micro-batch's tokens for which logits are computed one by one, so that only one part's are in memory")
      ->check(whole(1, most))
      ->capture_default_str()
      ->group(mesh);
  app.add_flag("--batch-invariant", o.batch_invariant,
               "A token's numbers do not depend on the other tokens in the batch, and are those of generate with this option")
      ->group(mesh);
  app.add_flag("--reproducible", o.reproducible,
               "The same bits for every --dp, --zero, --schedule and --pp; micro-batches are then 1 sequence unless given")
      ->group(mesh);
  app.add_option("--elastic", o.elastic,
                 "Ranks that train: when one is lost, the others go on from copies of the state in their memory, as long as MIN "
                 "are left; at most MAX, with processes over TCP that join again")
      ->type_name("MIN:MAX")
      ->group(mesh);
  app.add_option("--micro-batch", o.micro_batch,
                 "Sequences of a micro-batch on a rank (default: its share; pp > 1: a part of it)")
      ->check(whole(1, most))
      ->group(mesh);
  app.add_option("--global-batch", o.global_batch, "Sequences of a step over all ranks (default: 8)")
      ->check(whole(1, most))
      ->group(mesh);

  const char* model = "Model";
  app.add_option("--model", o.model, "Architecture")
      ->check(CLI::IsMember({"gpt", "llama", "mixtral"}))
      ->capture_default_str()
      ->group(model);
  app.add_option("--layers", o.layers, "Transformer blocks")->check(whole(1, most))->capture_default_str()->group(model);
  app.add_option("--width", o.width, "Width of the hidden state")->check(whole(1, most))->capture_default_str()->group(model);
  app.add_option("--heads", o.heads, "Attention heads (default: " + std::to_string(o.heads) + ", or as many as divide the width)")
      ->check(whole(1, most))
      ->group(model);
  app.add_option("--kv-heads", o.kv_heads, "Key and value heads (default: number of heads)")->check(whole(1, most))->group(model);
  app.add_option("--intermediate", o.intermediate,
                 "Width of llama's MLP or of an expert (default: 8/3 of the width, in steps of 64)")
      ->check(whole(1, most))
      ->group(model);
  app.add_option("--experts", o.experts, "Experts of a mixture (--model mixtral)")
      ->check(whole(1, most))
      ->capture_default_str()
      ->group(model);
  app.add_option("--top-k", o.top_k, "Experts of a token (default: 2, or all of fewer)")->check(whole(1, most))->group(model);
  app.add_option("--sequence", o.sequence,
                 "Bytes or tokens of a sequence (default: " + std::to_string(o.sequence) + ", or fewer if the files are short)")
      ->check(whole(1, most))
      ->group(model);
  app.add_option("--dropout", o.dropout, "Dropout probability")->check(number(0, 1, true))->capture_default_str()->group(model);
  app.add_option("--precision", o.precision, "Type of parameters and activations; fp16 (gpt) adapts a loss scale while it trains")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str()
      ->group(model);
  app.add_option("--recompute", o.recompute,
                 "Recomputation in backward: none, norms and activation functions (selective), or whole blocks (full)")
      ->check(CLI::IsMember({"none", "selective", "full"}))
      ->capture_default_str()
      ->group(model);
  app.add_option("--activations", o.activations,
                 "Place of the blocks' activations between forward and backward: device, or host (memory)")
      ->check(CLI::IsMember({"device", "host"}))
      ->capture_default_str()
      ->group(model);

  const char* optimizer = "Optimizer";
  app.add_option("--optimizer", o.optimizer,
                 "muon: matrices of blocks by Muon, the rest by AdamW; adamw is the default with --load and --offload")
      ->check(CLI::IsMember({"adamw", "muon"}))
      ->capture_default_str()
      ->group(optimizer);
  app.add_option("--learning-rate", o.learning_rate, "Peak learning rate, after the warm-up (train_gpt with adamw: 0.001)")
      ->check(number(0, weft::optim::largest_rate, true))
      ->capture_default_str()
      ->group(optimizer);
  app.add_option("--min-learning-rate", o.min_learning_rate, "Learning rate of the last step (default: a tenth of the peak)")
      ->check(number(0, weft::optim::largest_rate, true))
      ->group(optimizer);
  app.add_option("--warmup", o.warmup, "Warm-up steps (default: a tenth of all, at most 100)")
      ->check(whole(0, most))
      ->group(optimizer);
  app.add_option("--beta1", o.beta1, "Decay of AdamW's mean")->check(number(0, 1, true))->capture_default_str()->group(optimizer);
  app.add_option("--beta2", o.beta2, "Decay of AdamW's mean of squares")
      ->check(number(0, 1, true))
      ->capture_default_str()
      ->group(optimizer);
  app.add_option("--weight-decay", o.weight_decay, "Decoupled weight decay of matrices")
      ->check(number(0, weft::optim::largest_decay, true))
      ->capture_default_str()
      ->group(optimizer);
  app.add_option("--clip", o.clip, "Largest norm of all gradients; 0: no limit")
      ->check(number(0))
      ->capture_default_str()
      ->group(optimizer);
  app.add_option("--ema", o.ema,
                 "Decay of an average of the parameters, which validation, sample and exports use, such as 0.999; 0: none")
      ->check(number(0, 1, true))
      ->capture_default_str()
      ->group(optimizer);

  const char* report = "Report";
  app.add_option("--validation-fraction", o.validation_fraction, "Share of every file for validation, from its end")
      ->check(number(0, 1, true))
      ->capture_default_str()
      ->group(report);
  app.add_option("--validation", o.validation,
                 "Files of the kind of --data for validation, a set each, in place of --validation-fraction")
      ->expected(1, -1)
      ->type_name("FILE...")
      ->group(report);
  app.add_option("--validate-every", o.validate_every, "Steps between validations; 0: only at the end")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(report);
  app.add_option("--sample", o.sample, "Bytes or tokens to write at the end")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(report);
  app.add_option("--prompt", o.prompt, "Beginning of the sample; with token files whole numbers")
      ->type_name("TEXT")
      ->capture_default_str()
      ->group(report);
  app.add_flag("--trace-nonfinite", o.trace_nonfinite,
               "For each skipped step, print the rank and the gradient in which the NaN or infinity arose")
      ->group(report);
  app.add_option("--recheck", o.recheck,
                 "Steps between checks in which another data rank computes a micro-batch again and compares the bits; 0: none")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(report);
  app.add_option("--rehearse", o.rehearse,
                 "Memory and messages of one rank of N: two steps and an evaluation without ranks, data and arithmetic; "
                 "without a rank all ranks that differ")
      ->type_name("N[:rank[:early]]")
      ->group(report);
  app.add_option("--ranks-per-node", o.ranks_per_node, "With --rehearse: shows the axes that leave a node")
      ->check(whole(1, 1 << 16))
      ->group(report);
  app.add_option("--machine", o.machine,
                 "With --rehearse N: the time of a step on a100, h100, h200, this (measured in a second) or a .json file")
      ->group(report);
  app.add_flag("--csv", o.csv, "Write metrics.csv beside metrics.jsonl")->group(report);
  app.add_flag("--tensorboard", o.tensorboard, "Write losses, rates and speed for TensorBoard into the folder of --output")
      ->group(report);
  app.add_flag("--quiet", o.quiet, "Print only the validation loss")->group(report);
  app.add_flag("--json", o.json, "Print a line of JSON for every event instead of tables and the bar")->group(report);

  const char* checkpoint = "Checkpoints";
  app.add_option("--checkpoint", o.checkpoint,
                 "Folder for the whole training state, which any layout can load; also written at the end")
      ->type_name("FOLDER")
      ->group(checkpoint);
  app.add_option("--every", o.every, "Steps between checkpoints; 0: only at the end")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(checkpoint);
  app.add_option("--keep", o.keep, "Number of newest checkpoints to keep; 0: all")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(checkpoint);
  app.add_option("--keep-best", o.keep_best,
                 "Number of checkpoints with the lowest validation loss to keep, too; each checkpoint is then validated")
      ->check(whole(0, most))
      ->capture_default_str()
      ->group(checkpoint);
  app.add_flag("--resume", o.resume, "Continue from the newest checkpoint, or start if there is none")->group(checkpoint);
  app.add_flag("--allow-other-data", o.other_data,
               "With --resume: accept other --data, or another --validation-fraction, than those of the checkpoint")
      ->group(checkpoint);
  app.add_option("--restarts", o.restarts,
                 "Restart from the newest checkpoint when a rank dies, at most this often; with fewer ranks if a restart makes "
                 "no progress")
      ->check(whole(0, 1000000))
      ->group(checkpoint);
  app.add_option("--launch", o.launch,
                 "Ranks of --restarts: threads (default), tcp (processes of this machine), or a command in front of the program, "
                 "\"mpirun -np {ranks}\"")
      ->type_name("tcp|COMMAND")
      ->group(checkpoint);

  const char* transformers = "Hugging Face";
  app.add_option("--load", o.load,
                 "Folder of `transformers` (gpt2, llama, mixtral) to begin with: it gives --model and its sizes")
      ->type_name("FOLDER")
      ->group(transformers);
  app.add_option("--export", o.export_folder, "Folder for the trained model, as `transformers` loads it")
      ->type_name("FOLDER")
      ->group(transformers);

  if (o.finetunes) {
    const char* lora = "Low-rank adapters";
    app.add_option("--lora", o.lora, "Train only adapters of this rank at linear layers; 0: all parameters")
        ->check(whole(0, most))
        ->capture_default_str()
        ->group(lora);
    app.add_option("--lora-alpha", o.lora_alpha, "An adapter's output is multiplied by alpha / rank")
        ->check(number(0))
        ->capture_default_str()
        ->group(lora);
    app.add_option("--lora-dropout", o.lora_dropout, "Dropout of an adapter's input")
        ->check(number(0, 1, true))
        ->capture_default_str()
        ->group(lora);
    app.add_option("--lora-layers", o.lora_layers,
                   "The layers, by name or its end (q_proj v_proj), or a pattern (\"*.mlp.*\"); default: all of the blocks")
        ->expected(1, -1)
        ->type_name("NAME...")
        ->group(lora);
    app.add_option("--adapters", o.adapters, "Folder of adapters to begin with, as PEFT writes it: it gives --lora and the rest")
        ->type_name("FOLDER")
        ->group(lora);
    app.add_option("--export-adapters", o.export_adapters,
                   "Folder for the adapters, as PEFT loads them; --export merges them into the model")
        ->type_name("FOLDER")
        ->group(lora);
  }

  if (!command_line::parse(app, argc, argv)) return std::nullopt;
  o.sequence_given = app.count("--sequence") > 0;
  for (const auto& [name, files] : {std::pair("--data", &o.data), std::pair("--validation", &o.validation)})
    for (const std::string& file : *files)
      if (file.rfind("--", 0) == 0)
        throw weft::UsageError(who + name + " is followed by the option " + file + ", it needs at least one file");
  if (o.finetunes && o.load.empty()) throw weft::UsageError(who + "--load FOLDER is missing: the model to begin with");
  require_kinds(o, app.count("--validation-fraction") > 0);
  for (const char* name : {"--tokenizer", "--chat", "--learned", "--cut", "--balance-cp"})
    if (!o.of_conversations() && app.count(name) > 0)
      throw weft::UsageError(who + name + " is of conversations: it needs --data FILE.jsonl");
  if (o.of_conversations()) {
    if (o.tokenizer.empty()) o.tokenizer = o.load;
    if (o.tokenizer.empty())
      throw weft::UsageError(who + "--data " + o.data.front() + " has conversations by its name: they need --tokenizer FILE");
    if (!o.vocabulary) o.vocabulary = o.load.empty() ? vocabulary_of_tokenizer(o) : vocabulary_of_folder(o.load);
    if (app.count("--prompt") == 0) o.prompt = "Hello";
  }
  const auto is_binary = [](const std::string& file) { return file.ends_with(".bin"); };
  if (!o.load.empty() && !o.vocabulary && std::any_of(o.data.begin(), o.data.end(), is_binary))
    o.vocabulary = vocabulary_of_folder(o.load);
  for (const std::string& file : o.data)
    if (is_binary(file) && !o.of_tokens())
      throw weft::UsageError(who + "--data " + file +
                             " is a token file by its name, which needs --vocabulary N, with tokens below N (GPT-2: 50257)");
  if (o.of_tokens() && o.data.empty())
    throw weft::UsageError(who + "--vocabulary is of token files: it needs --data FILE...; a text has the 256 bytes");
  if (!o.weights.empty()) {
    if (!o.of_tokens() || o.of_conversations())
      throw weft::UsageError(who + "--weights is of token files: it needs --data FILE.bin... and --vocabulary");
    if (o.weights.size() != o.data.size())
      throw weft::UsageError(who + "--weights " + o.weights_text() + ": one weight for each file of --data, which has " +
                             std::to_string(o.data.size()));
    for (const double weight : o.weights)
      if (!(weight > 0) || !std::isfinite(weight))
        throw weft::UsageError(who + "--weights " + o.weights_text() + ": a weight is a number above 0");
  }
  if (!o.of_tokens() && app.count("--token-type") > 0)
    throw weft::UsageError(who + "--token-type is of token files: it needs --vocabulary");
  if (o.of_tokens() && !o.of_conversations() && app.count("--prompt") == 0) o.prompt = "0";
  // A folder's model was trained with AdamW, and Muon's state cannot be offloaded.
  if (app.count("--optimizer") == 0 && (!o.load.empty() || o.offload != "none")) o.optimizer = "adamw";
  if (app.count("--learning-rate") == 0 && defaults.optimizer == "muon" && o.optimizer == "adamw")
    o.learning_rate = train_gpt::Options().learning_rate;
  for (const auto& [name, value] :
       {std::pair("--output", &o.output), std::pair("--offload", &o.offload), std::pair("--checkpoint", &o.checkpoint),
        std::pair("--load", &o.load), std::pair("--export", &o.export_folder), std::pair("--adapters", &o.adapters),
        std::pair("--export-adapters", &o.export_adapters)})
    if (value->empty() && app.get_option_no_throw(name) != nullptr && app.count(name) > 0)
      throw weft::UsageError(who + name + " is empty: it needs a name");
  for (const auto& [name, value] :
       {std::pair("--output", &o.output), std::pair("--checkpoint", &o.checkpoint), std::pair("--export", &o.export_folder),
        std::pair("--export-adapters", &o.export_adapters)}) {
    std::error_code unseen;  // a path that cannot be examined fails when the folder is made
    const auto status = std::filesystem::status(*value, unseen);
    if (!value->empty() && std::filesystem::exists(status) && !std::filesystem::is_directory(status))
      throw weft::UsageError(who + name + " " + *value + ": is there, and is no folder");
  }
  if (app.count("--rehearse") > 0 && o.rehearse.empty())
    throw weft::UsageError(who + "--rehearse is empty: it needs N or N:rank");
  if (!o.machine.empty() && o.rehearse.empty())
    throw weft::UsageError(who + "--machine without --rehearse: an estimate needs a rehearsal");
  if (o.ranks_per_node && o.rehearse.empty())
    throw weft::UsageError(who + "--ranks-per-node without --rehearse: it decides which axes of a rehearsal leave a node");
  if (!o.rehearse.empty() && o.ranks && *o.ranks != weft::runtime::detail::rehearsed_rank_of("--rehearse", o.rehearse).ranks)
    throw weft::UsageError(who + "--ranks " + std::to_string(*o.ranks) + " beside --rehearse " + o.rehearse +
                           ": --rehearse N gives the number of ranks");
  if (!o.rehearse.empty() && o.restarts) throw weft::UsageError(who + "--restarts beside --rehearse: a rehearsal has no ranks");
  for (const char* name : {"--every", "--keep", "--keep-best", "--resume", "--restarts", "--allow-other-data"})
    if (o.checkpoint.empty() && app.count(name) > 0)
      throw weft::UsageError(who + name + " is of checkpoints: it needs --checkpoint FOLDER");
  if (o.other_data && !o.resume && !o.restarts)
    throw weft::UsageError(who + "--allow-other-data is of a run that goes on: it needs --resume");
  if (o.keep_best > 0 && (o.keep == 0 || !o.validates()))
    throw weft::UsageError(who + "--keep-best " + std::to_string(o.keep_best) +
                           (o.keep == 0 ? " beside --keep 0, which keeps all checkpoints"
                                        : " beside --validation-fraction 0: there is no validation loss"));
  if (o.restarts && o.every == 0)
    throw weft::UsageError(who + "--restarts beside --every 0: there would be nothing to go on from, it needs --every N");
  if (o.launch == "gloo") o.launch = "tcp";  // the backend's former name
  if (app.count("--launch") > 0 && (!o.restarts || o.launch.find_first_not_of(' ') == o.launch.npos))
    throw weft::UsageError(o.restarts ? who + "--launch is empty: it needs tcp or a command"
                                      : who + "--launch chooses the launcher of --restarts: it needs --restarts N");
#if !__has_include(<xxhash.h>) || !__has_include(<nlohmann/json.hpp>)
  for (const auto& [name, value] :
       {std::pair("--checkpoint", &o.checkpoint), std::pair("--load", &o.load), std::pair("--export", &o.export_folder)})
    if (!value->empty()) throw weft::UsageError(who + name + ": this program was built without xxhash.h (Debian: libxxhash-dev)");
#endif
  if (!o.load.empty()) {
    for (const char* name : {"--model", "--layers", "--width", "--heads", "--kv-heads", "--intermediate", "--experts", "--top-k"})
      if (app.count(name) > 0) throw weft::UsageError(who + name + " beside --load " + o.load + ": the folder gives it");
    const std::int64_t asked = o.sequence;
    take_folder(o);
    const std::int64_t longest = o.sequence;
    o.sequence = app.count("--sequence") > 0 ? asked : std::min(asked, longest);
    if (o.model == "gpt" && o.sequence > longest)
      throw weft::UsageError(who + "--sequence " + std::to_string(o.sequence) + " is longer than the " + std::to_string(longest) +
                             " positions that " + o.load + " has");
  }
  if (!o.adapters.empty()) {
    for (const char* name : {"--lora", "--lora-alpha", "--lora-layers"})
      if (app.count(name) > 0) throw weft::UsageError(who + name + " beside --adapters " + o.adapters + ": the folder gives it");
    take_adapters(o);
  }
  if (o.finetunes && o.lora == 0)
    for (const char* name : {"--lora-alpha", "--lora-dropout", "--lora-layers", "--export-adapters"})
      if (app.count(name) > 0) throw weft::UsageError(who + name + " is of adapters: it needs --lora RANK");
  if (o.finetunes && o.precision == "fp16") throw weft::UsageError(who + "--precision is fp32 or bf16");
  if (o.load.empty() && o.head_width == 0 && app.count("--heads") == 0) o.heads = heads_for(o.width, o.heads, o.model != "gpt");
  if (o.load.empty() && o.head_width == 0 && o.width % o.heads != 0)
    throw weft::LayoutError("width(" + std::to_string(o.width) + ") % heads(" + std::to_string(o.heads) +
                            ") != 0: every head has the same width");
  if (o.precision == "fp16" && (o.model != "gpt" || o.sequence_parallel))
    throw weft::UsageError(
        who +
        "--precision fp16 is compiled for --model gpt without --sequence-parallel; --precision bf16 is for every "
        "model and layout");
  if (app.count("--elastic") > 0) {
    (void)o.elastic_range();
    if (o.dp)
      throw weft::UsageError(who + "--elastic beside --dp: the data parallel degree follows from the ranks that are left");
    if (o.restarts) throw weft::UsageError(who + "--elastic beside --restarts: the ranks go on by themselves; leave one out");
#if !__has_include(<xxhash.h>) || !__has_include(<nlohmann/json.hpp>)
    throw weft::UsageError(who + "--elastic: this program was built without xxhash.h (Debian: libxxhash-dev)");
#endif
  }
  if (app.count("--pp-layers") > 0 && o.pp_layers.empty()) throw weft::UsageError(who + "--pp-layers is empty");
  (void)o.stage_layers();
  if (o.replicate > 1 && o.zero == 0)
    throw weft::UsageError(who + "--replicate " + std::to_string(o.replicate) +
                           " copies shards, and --zero 0 makes none: --zero is 1, 2 or 3");
  if (o.model == "gpt" && app.count("--intermediate") > 0)
    throw weft::UsageError(who + "--intermediate is llama's and mixtral's: gpt's MLP has 4 * width");
  if (o.model != "mixtral")
    for (const char* name : {"--ep", "--etp", "--experts", "--top-k"})
      if (app.count(name) > 0)
        throw weft::UsageError(who + name + " is of a mixture of experts: --model is " + o.model + ", it needs --model mixtral");
  if (app.count("--top-k") == 0) o.top_k = std::min(o.top_k, o.experts);
  if (o.model == "mixtral" && o.top_k > o.experts)
    throw weft::LayoutError("top-k(" + std::to_string(o.top_k) + ") > experts(" + std::to_string(o.experts) +
                            "): a token goes to different experts");
  if (o.load.empty() && o.head_width == 0 && o.model != "gpt" && o.width / o.heads % 2 != 0)
    throw weft::LayoutError("width(" + std::to_string(o.width) + ") / heads(" + std::to_string(o.heads) +
                            ") = " + std::to_string(o.width / o.heads) + ": rotary positions need an even number");
  if (o.least_learning_rate() > o.learning_rate)
    throw weft::UsageError(who + "--min-learning-rate " + std::to_string(o.least_learning_rate()) + " is above --learning-rate " +
                           std::to_string(o.learning_rate));
  if (o.prompt.empty() && o.sample > 0) throw weft::UsageError(who + "--prompt is empty: a sample needs a byte to start with");
  if (o.sample > 0 && prompt_of(o).empty())
    throw weft::UsageError(who + "--prompt is empty: a sample needs a token to start with");
  return o;
}

}  // namespace train_gpt
