// SPDX-License-Identifier: Apache-2.0
#pragma once
// The architectures of `transformers` and weft's models of them. One model covers several: models::Llama is llama, mistral,
// ministral, qwen2 or qwen3, and models::Mixtral is mixtral or qwen3_moe, depending on its attention options.
//
//   architecture_of(models::LlamaConfig{.attention = {.query_key_norm = true}}).type   // "qwen3"

#include <array>
#include <string>
#include <string_view>
#include <type_traits>

#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/models/mixtral.hpp>

namespace weft::hugging_face::detail {

struct Architecture {
  std::string_view type;        ///< model_type in config.json
  std::string_view class_name;  ///< of the model with its last projection
  std::string_view base_name;   ///< of the model without it
  std::string_view model;       ///< weft's name, after the first architecture that the model supported
};

inline constexpr std::array<Architecture, 8> architectures = {{{"gpt2", "GPT2LMHeadModel", "GPT2Model", "gpt2"},
                                                               {"llama", "LlamaForCausalLM", "LlamaModel", "llama"},
                                                               {"mistral", "MistralForCausalLM", "MistralModel", "llama"},
                                                               {"ministral", "MinistralForCausalLM", "MinistralModel", "llama"},
                                                               {"qwen2", "Qwen2ForCausalLM", "Qwen2Model", "llama"},
                                                               {"qwen3", "Qwen3ForCausalLM", "Qwen3Model", "llama"},
                                                               {"mixtral", "MixtralForCausalLM", "MixtralModel", "mixtral"},
                                                               {"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3MoeModel", "mixtral"}}};

/// Null for an unknown model_type.
constexpr const Architecture* find_architecture(std::string_view type) {
  for (const Architecture& one : architectures)
    if (one.type == type) return &one;
  return nullptr;
}

/// The architecture under which a model is written: the one from which it was read, if that has the config's features.
inline const Architecture& architecture_of(const models::GptConfig&) { return *find_architecture("gpt2"); }
inline const Architecture& architecture_of(const models::LlamaConfig& config) {
  if (config.attention.query_key_norm) return *find_architecture("qwen3");
  if (config.attention.bias == models::AttentionBias::query_key_value) return *find_architecture("qwen2");
  if (models::detail::windows_differ(config) || config.files.type == "ministral") return *find_architecture("ministral");
  return *find_architecture(config.mask.window != 0 || config.files.type == "mistral" ? "mistral" : "llama");
}
inline const Architecture& architecture_of(const models::MixtralConfig& config) {
  return *find_architecture(config.attention.query_key_norm ? "qwen3_moe" : "mixtral");
}

/// The name of a config's model, as in Architecture::model.
template <class Config>
constexpr std::string_view model_of() {
  return std::is_same_v<Config, models::GptConfig> ? "gpt2" : std::is_same_v<Config, models::LlamaConfig> ? "llama" : "mixtral";
}

template <class Config>
constexpr bool is_known = std::is_same_v<Config, models::GptConfig> || std::is_same_v<Config, models::LlamaConfig> ||
                          std::is_same_v<Config, models::MixtralConfig>;

/// True, or a compile-time error: `transformers` has no architecture for a user's model.
template <class Model>
constexpr bool require_known() {
  static_assert(
      is_known<typename Model::Config>,
      "weft: hugging_face::load and save are of models::Gpt, Llama and Mixtral; checkpoint::load and save of every model");
  return is_known<typename Model::Config>;
}

/// The name under which `transformers` stores one of weft's parameters. weft uses Mixtral's names.
inline std::string stored_name(std::string name, const Architecture& architecture) {
  constexpr std::string_view mixture = ".block_sparse_moe.";
  const auto at = architecture.type == "qwen3_moe" ? name.find(mixture) : name.npos;
  if (at == name.npos) return name;
  name.replace(at, mixture.size(), ".mlp.");
  for (const auto& [weft, theirs] : {std::pair{".w1.", ".gate_proj."}, {".w3.", ".up_proj."}, {".w2.", ".down_proj."}})
    if (const auto inner = name.rfind(weft); inner != name.npos) name.replace(inner, 4, theirs);
  return name;
}

}  // namespace weft::hugging_face::detail
