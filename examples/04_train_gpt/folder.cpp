// SPDX-License-Identifier: Apache-2.0
// The model settings of a `transformers` folder, as options of the trainer.

#include <cstdint>
#include <string>

#include <weft/core/error.hpp>
#if __has_include(<xxhash.h>) && __has_include(<nlohmann/json.hpp>) && __has_include(<weft/hugging_face/config.hpp>)
#include <weft/hugging_face/adapters.hpp>
#include <weft/hugging_face/config.hpp>
#define TRAIN_GPT_FOLDERS
#endif

#include "options.hpp"

namespace train_gpt {

#ifdef TRAIN_GPT_FOLDERS

namespace {

template <class Config>
void take(Options& o) {
  const auto config = weft::hugging_face::read_config<Config>(o.load);
  o.layers = std::int64_t(config.layers);
  o.width = std::int64_t(config.width);
  o.heads = std::int64_t(config.heads);
  o.kv_heads = std::int64_t(config.kv_heads ? config.kv_heads : config.heads);
  o.sequence = std::int64_t(config.sequence);
  if constexpr (requires { config.experts; }) {
    o.experts = std::int64_t(config.experts);
    o.top_k = std::int64_t(config.top_k);
  }
  if (o.vocabulary_size() == config.vocabulary) return;
  const std::string number = std::to_string(config.vocabulary);
  throw weft::UsageError(o.program + ": --load " + o.load + ": its vocabulary is of " + number + " tokens, and " +
                         (o.of_tokens() ? "--vocabulary is " : "a text's of ") + std::to_string(o.vocabulary_size()) +
                         ": it needs --data FILE.bin --vocabulary " + number);
}

}  // namespace

void take_folder(Options& o) {
  const std::string type = weft::hugging_face::model_type(o.load);
  o.model = type == "gpt2" ? "gpt" : type;
  if (o.model == "gpt") take<weft::models::GptConfig>(o);
  else if (o.model == "llama") take<weft::models::LlamaConfig>(o);
  else take<weft::models::MixtralConfig>(o);
}

std::int64_t vocabulary_of_folder(const std::string& folder) {
  const std::string type = weft::hugging_face::model_type(folder);
  using weft::hugging_face::read_config;
  return std::int64_t(type == "gpt2"    ? read_config<weft::models::GptConfig>(folder).vocabulary
                      : type == "llama" ? read_config<weft::models::LlamaConfig>(folder).vocabulary
                                        : read_config<weft::models::MixtralConfig>(folder).vocabulary);
}

void take_adapters(Options& o) {
  const weft::LoraOptions lora = weft::hugging_face::read_adapter_config(o.adapters);
  o.lora = std::int64_t(lora.rank);
  o.lora_alpha = lora.alpha;
  o.lora_layers = lora.match;
}

#else

void take_folder(Options&) {}  // these options are refused
std::int64_t vocabulary_of_folder(const std::string&) { return 1; }
void take_adapters(Options&) {}

#endif

}  // namespace train_gpt
