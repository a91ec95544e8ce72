// SPDX-License-Identifier: Apache-2.0
// Continues texts with a model from a `transformers` folder, with a key-value cache, over tensor- and pipeline-parallel ranks.
//
//   ./examples/run generate --load llama --prompt "Once upon a time"                   greedy, 64 new tokens
//   ./examples/run generate --load llama --prompt "Hello" --tp 2 --pp 2 --temperature 0.8 --top-p 0.9 --seed 7
//   ./examples/run generate --load gpt2 --tokens 464,318,257 --max-new-tokens 16       ids in, ids out
//   ./examples/run generate --load gpt2 --token-file prompts.txt                       one prompt per line, in one batch
//   ./examples/run generate --load gpt2 --token-file prompts.txt --logits out.safetensors     logits [tokens, vocabulary] instead
//
// Every layout and rank draws the same tokens for a seed. With several --prompt, or lines, each continuation has its own line.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/safetensors.hpp>
#include <weft/comm/agree.hpp>
#include <weft/core/input_file.hpp>
#include <weft/core/output_file.hpp>
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
#include <weft/comm/mpi.hpp>
#endif
#include <weft/hugging_face/stop_tokens.hpp>
#include <weft/hugging_face/tokenizer.hpp>
#include <weft/runtime/run.hpp>

#include "../command_line.hpp"
#include "model.hpp"

namespace {

using namespace weft;
using generate_text::LoadedModel;
using Prompts = std::vector<std::vector<std::int32_t>>;

struct Options {
  std::string load, token_file, logits;
  std::vector<std::string> prompts, tokens;
  std::optional<std::string> stop;
  generate_text::Layout layout;
  std::optional<std::size_t> max_new_tokens;
  Sampling sampling;
  bool log_probabilities = false, quiet = false;
};

std::vector<std::int32_t> numbers_of(const std::string& text, const std::string& option) {
  return command_line::whole_numbers("generate: " + option, text);
}

Prompts prompts_of(const Options& o, const hugging_face::Tokenizer* tokenizer) {
  if (int(!o.prompts.empty()) + int(!o.tokens.empty()) + int(!o.token_file.empty()) != 1)
    throw UsageError("generate: one of --prompt TEXT, --tokens 1,2,3 and --token-file FILE is needed");
  Prompts all;
  for (const std::string& prompt : o.prompts) all.push_back(tokenizer->encode(prompt));
  for (const std::string& tokens : o.tokens) all.push_back(numbers_of(tokens, "--tokens"));
  if (!o.token_file.empty()) {
    constexpr std::size_t most = 64u << 20;
    std::istringstream file(weft::detail::InputFile("generate", o.token_file, "token file", most).read());
    for (std::string line; std::getline(file, line);)
      if (auto numbers = numbers_of(line, "--token-file " + o.token_file); !numbers.empty()) all.push_back(std::move(numbers));
    if (all.empty())
      throw UsageError("generate: --token-file " + o.token_file + " holds no tokens: a prompt a line, such as 464,318");
  }
  for (const auto& prompt : all)
    if (prompt.empty()) throw UsageError("generate: an empty prompt: the first token follows some token");
  return all;
}

void print(const std::vector<std::int32_t>& tokens, const hugging_face::Tokenizer* tokenizer) {
  std::string text;
  if (tokenizer != nullptr) {
    text = tokenizer->decode(tokens);
  } else {
    for (const std::int32_t token : tokens) text += (text.empty() ? "" : ",") + std::to_string(token);
  }
  std::printf("%s\n", text.c_str());
}

/// Writes "logits" and "tokens" of one sequence, or "logits.0", "logits.1", ... of several.
void write_logits(LoadedModel& model, const Prompts& prompts, const std::string& path, bool writes) {
  for (std::size_t i = 0; i < prompts.size(); ++i)
    if (const std::size_t most = model.positions(); most != 0 && prompts[i].size() > most)
      throw UsageError("generate: prompt " + std::to_string(i) + " of " + std::to_string(prompts[i].size()) +
                       " tokens is more than the " + std::to_string(most) + " tokens that the model was made for");
  std::vector<checkpoint::StoredTensor> tensors;
  std::vector<std::vector<float>> values;
  const std::uint64_t vocabulary = model.vocabulary();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<double> logits = model.logits(prompts[i]);
    if (!writes) continue;
    tensors.push_back({prompts.size() == 1 ? "logits" : "logits." + std::to_string(i),
                       checkpoint::StoredType::f32,
                       {prompts[i].size(), vocabulary},
                       0,
                       0});
    values.emplace_back(logits.begin(), logits.end());
  }
  if (!writes) return;
  weft::detail::require_output("generate: --logits", path);
  const std::string header = checkpoint::safetensors_header(tensors);
  const std::string unfinished = path + ".tmp-" + checkpoint::detail::nonce();
  try {
    auto file = checkpoint::detail::File::make(checkpoint::FileSystem::system(), unfinished, path);
    file.write(header.data(), header.size());
    for (const auto& one : values) file.write(one.data(), one.size() * sizeof(float));
    file.finish();
    if (std::rename(unfinished.c_str(), path.c_str()) != 0)
      throw UsageError("generate: --logits " + path + " cannot be written: " + std::strerror(errno));
  } catch (...) {
    std::remove(unfinished.c_str());
    throw;
  }
}

int rank_main(World& world, const Options& o) {
  // Prompts given as ids produce ids.
  std::optional<hugging_face::Tokenizer> tokenizer;
  if (!o.prompts.empty()) tokenizer = hugging_face::Tokenizer::load(o.load);
  const hugging_face::Tokenizer* text = tokenizer ? &*tokenizer : nullptr;
  const Prompts prompts = prompts_of(o, text);
  agree(world.communicator(), {{"--tp", o.layout.tp},
                               {"--pp", o.layout.pp},
                               {"--max-new-tokens", o.max_new_tokens},
                               {"--temperature", o.sampling.temperature},
                               {"--top-k", o.sampling.top_k},
                               {"--top-p", o.sampling.top_p},
                               {"--seed", o.sampling.seed},
                               {"--stop", o.stop.value_or("as the folder says")},
                               {"--logits", o.logits},
                               {"--log-probabilities", o.log_probabilities},
                               {"--batch-invariant", o.layout.batch_invariant}});
  const std::unique_ptr<LoadedModel> model = generate_text::load(world, o.load, o.layout);
  const bool first = world.rank() == 0;
  if (!o.logits.empty()) return write_logits(*model, prompts, o.logits, first), 0;
  GenerateOptions options{.max_new_tokens = o.max_new_tokens, .sampling = o.sampling, .log_probabilities = o.log_probabilities};
  options.stop = o.stop ? numbers_of(*o.stop, "--stop") : hugging_face::stop_tokens(o.load);
  using Clock = std::chrono::steady_clock;
  const auto started = Clock::now();
  auto prefilled = started;
  std::size_t count = 0;
  // A single text is printed while it is generated.
  std::optional<hugging_face::DecodeStream> stream;
  if (first && text != nullptr && prompts.size() == 1) stream = text->stream();
  if (stream) std::printf("%s", o.prompts[0].c_str());
  const std::set<std::int32_t> ends(options.stop.begin(), options.stop.end());
  options.each = [&](std::size_t, std::int32_t token) {
    if (count++ == 0) prefilled = Clock::now();
    if (stream && !ends.contains(token)) std::printf("%s", stream->next(token).c_str()), std::fflush(stdout);
    return true;
  };
  Generated made = model->generate(prompts, options);
  const std::chrono::duration<double> first_token = prefilled - started, others = Clock::now() - prefilled;
  if (!first) return 0;
  if (stream) std::printf("%s\n", stream->finish().c_str());
  for (std::size_t i = 0; i < made.size() && !stream; ++i) {
    if (text != nullptr) {
      made[i].insert(made[i].begin(), prompts[i].begin(), prompts[i].end());
      print(made[i], text);
    } else {
      print(made[i], nullptr);
    }
  }
  for (const std::vector<double>& one : made.log_probabilities) {
    for (std::size_t i = 0; i < one.size(); ++i) std::printf("%s%.17g", i == 0 ? "log-probabilities: " : ",", one[i]);
    std::printf("\n");
  }
  if (!o.quiet)
    std::fprintf(stderr, "%zu tokens: the first after %.3f s, then %.1f a second\n", count, first_token.count(),
                 others.count() > 0 ? double(count - std::min(count, prompts.size())) / others.count() : 0.0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  std::string stop;
  CLI::App app("Continues texts by a model of a folder of `transformers`.", "generate");
  app.add_option("--load", o.load, "Folder with config.json and model.safetensors, and tokenizer.json for --prompt");
  app.add_option("--prompt", o.prompts, "Text; several are one batch")->allow_extra_args(false);
  app.add_option("--tokens", o.tokens, "A prompt as token ids, 464,318; prints ids")->allow_extra_args(false);
  app.add_option("--token-file", o.token_file, "File of prompts as token ids, one prompt a line; prints ids");
  app.add_option("--max-new-tokens", o.max_new_tokens,
                 "New tokens of each prompt (default: 64, or fewer if the model has less room)")
      ->check(command_line::whole(1));
  app.add_option("--temperature", o.sampling.temperature,
                 "0: the most probable token (default: 0, with --top-k, --top-p or --seed 1)");
  app.add_option("--top-k", o.sampling.top_k, "Only the k most probable tokens; 0: all")->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p, "Only the most probable tokens that together reach p")->capture_default_str();
  app.add_option("--seed", o.sampling.seed)->check(command_line::whole(0))->capture_default_str();
  app.add_option("--stop", stop, "Token ids that end a text, \"\" for none; default: the folder's eos_token_id");
  app.add_option("--tp", o.layout.tp, "Tensor parallel degree")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--pp", o.layout.pp, "Pipeline parallel degree")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--logits", o.logits, "Write the logits of every prompt's tokens to this file, and generate nothing");
  app.add_flag("--log-probabilities", o.log_probabilities,
               "After the texts, print a line of each one's new tokens' log-probabilities");
  app.add_flag("--batch-invariant", o.layout.batch_invariant,
               "A token's numbers do not depend on the other tokens in the batch, and are those of training with this option");
  app.add_flag("--quiet", o.quiet, "Print no line of times");
  app.footer("--rehearse N[:rank] prints the memory and messages of a rank of N (docs/planning.md).");
  RunOptions how = take_run_options(argc, argv);
  try {
    if (!command_line::parse(app, argc, argv)) return runtime::written();
    if (app.count("--stop") != 0) o.stop = stop;
    if (o.load.empty()) throw UsageError("generate: --load FOLDER is needed (--help lists the options)");
    for (const char* name : {"--top-k", "--top-p", "--seed"}) {
      if (app.count(name) == 0) continue;
      if (app.count("--temperature") == 0) o.sampling.temperature = 1;
      else if (o.sampling.temperature == 0)
        throw UsageError(std::string("generate: ") + name +
                         " beside --temperature 0, which takes the most probable token: leave one out");
    }
  } catch (...) {
    how.refused = std::current_exception();
  }
  const auto generate = [&](World& world) { return rank_main(world, o); };
  how.ranks = int(std::min<std::size_t>(o.layout.tp * o.layout.pp, 1 << 30));
#if __has_include(<mpi.h>) && __has_include(<weft/comm/mpi.hpp>)
  return run<comm::Threads, comm::Mpi>(how, generate);
#else
  return run<comm::Threads>(how, generate);
#endif
}
