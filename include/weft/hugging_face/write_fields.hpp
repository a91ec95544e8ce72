// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers of weft's configs as fields of a config.json, for version 5 of `transformers` and, where the spelling differs, also
// for version 4. Features that an architecture lacks are refused.
//
//   nlohmann::ordered_json json = fields_of(config);

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <weft/core/error.hpp>
#include <weft/hugging_face/architecture.hpp>

namespace weft::hugging_face::detail {

[[noreturn]] inline void cannot_write(std::string_view what) {
  throw UsageError("hugging_face::save: " + std::string(what) + ", which `transformers` has not in this architecture");
}
/// `window`: the architecture supports a window; `by_layer`: in some of its layers.
template <class Config>
void require_mask(const Config& c, bool window, bool by_layer) {
  if (!c.mask.causal) cannot_write("the model's attention is not causal");
  if (!window && c.mask.window != 0) cannot_write("the model's attention has a window");
  if (!by_layer && models::detail::windows_differ(c)) cannot_write("some of the model's layers have a window and others do not");
}
inline const char* name_of(MlpActivation activation) {
  switch (activation) {
    case MlpActivation::gelu: return "gelu";
    case MlpActivation::relu: return "relu";
    case MlpActivation::silu: return "silu";
    case MlpActivation::tanh: return "tanh";
    case MlpActivation::gelu_tanh: break;
  }
  return "gelu_new";
}

inline nlohmann::ordered_json fields_of(const models::GptConfig& c) {
  require_mask(c, false, false);
  if (c.kv_heads != 0 && c.kv_heads != c.heads) cannot_write("the model has grouped heads");
  return {{"activation_function", name_of(c.activation)},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", c.dropout},
          {"initializer_range", c.standard_deviation},
          {"layer_norm_epsilon", c.epsilon},
          {"n_embd", c.width},
          {"n_head", c.heads},
          {"n_inner", c.intermediate_width() == 4 * c.width ? nlohmann::ordered_json() : nlohmann::ordered_json(c.intermediate)},
          {"n_layer", c.layers},
          {"n_positions", c.sequence},
          {"resid_pdrop", c.dropout},
          {"tie_word_embeddings", c.tied},
          {"vocab_size", c.vocabulary}};
}

/// {"rope_type": ..., and the numbers of that type}.
inline nlohmann::ordered_json rope_fields(const RopeScaling& scaling) {
  using Type = RopeScaling::Type;
  nlohmann::ordered_json json;
  if (scaling.type != Type::none) json["factor"] = scaling.factor;
  switch (scaling.type) {
    case Type::none: json["rope_type"] = "default"; return json;
    case Type::linear: json["rope_type"] = "linear"; return json;
    case Type::dynamic: json["rope_type"] = "dynamic"; return json;
    case Type::llama3:
      json["rope_type"] = "llama3";
      json["high_freq_factor"] = scaling.high_frequency;
      json["low_freq_factor"] = scaling.low_frequency;
      break;
    case Type::yarn:
      json["rope_type"] = "yarn";
      json["beta_fast"] = scaling.high_frequency;
      json["beta_slow"] = scaling.low_frequency;
      if (!scaling.whole_pairs) json["truncate"] = false;
      break;
    case Type::longrope:
      json["rope_type"] = "longrope";
      json["short_factor"] = scaling.short_factors;
      json["long_factor"] = scaling.long_factors;
      break;
  }
  if (scaling.attention_factor != 0) json["attention_factor"] = scaling.attention_factor;
  json["original_max_position_embeddings"] = scaling.original_sequence;
  return json;
}

/// The fields that all Llama-like models share.
template <class Config>
nlohmann::ordered_json llama_fields(const Config& c, std::size_t intermediate) {
  nlohmann::ordered_json rope = rope_fields(c.attention.rope_scaling);
  const bool dynamic = c.attention.rope_scaling.type == RopeScaling::Type::dynamic;
  const std::size_t longest = dynamic ? c.attention.rope_scaling.original_sequence : c.sequence;  // the length before scaling
  nlohmann::ordered_json json = {{"attention_dropout", 0.0},
                                 {"hidden_act", "silu"},
                                 {"hidden_size", c.width},
                                 {"initializer_range", c.standard_deviation},
                                 {"intermediate_size", intermediate},
                                 {"max_position_embeddings", longest},
                                 {"num_attention_heads", c.heads},
                                 {"num_hidden_layers", c.layers},
                                 {"num_key_value_heads", c.kv_heads ? c.kv_heads : c.heads},
                                 {"rms_norm_eps", c.epsilon}};
  const std::string_view type = architecture_of(c).type;  // the default differs for qwen3, and ministral has none
  if (c.attention.head_width != 0 || c.attention.query_key_norm || type == "ministral")
    json["head_dim"] = c.attention.head_width ? c.attention.head_width : c.width / c.heads;
  if (c.attention.rope_scaling.type != RopeScaling::Type::none) json["rope_scaling"] = rope;  // for version 4
  rope["rope_theta"] = c.rope_base;
  json["rope_parameters"] = std::move(rope);
  json["rope_theta"] = c.rope_base;  // for version 4
  json["tie_word_embeddings"] = c.tied;
  json["vocab_size"] = c.vocabulary;
  return json;
}
template <class Config>
nlohmann::ordered_json layer_types(const Config& c) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::size_t layer = 0; layer < c.layers; ++layer)
    types.push_back(models::detail::layer_mask(c, layer).window != 0 ? "sliding_attention" : "full_attention");
  return types;
}
/// The window of Mistral and Mixtral; null for none.
template <class Config>
nlohmann::ordered_json window_of(const Config& c) {
  return c.mask.window != 0 ? nlohmann::ordered_json(c.mask.window) : nlohmann::ordered_json();
}
/// The windows of Qwen's layers. Version 4 reads max_window_layers, which can describe only the last layers.
template <class Config>
void write_window(nlohmann::ordered_json& json, const Config& c) {
  json["use_sliding_window"] = c.mask.window != 0;
  if (c.mask.window == 0) return;
  json["sliding_window"] = c.mask.window;
  json["max_window_layers"] = 0;
  if (!models::detail::windows_differ(c)) return;
  json["max_window_layers"] = std::find(c.window_layers.begin(), c.window_layers.end(), true) - c.window_layers.begin();
  json["layer_types"] = layer_types(c);
}

inline nlohmann::ordered_json fields_of(const models::LlamaConfig& c) {
  const std::string_view type = architecture_of(c).type;
  const bool mistral = type.ends_with("istral"), qwen = type.starts_with("qwen");
  require_mask(c, type != "llama", true);
  if (type == "qwen3" && c.attention.bias == models::AttentionBias::query_key_value)
    cannot_write("the model's attention has norms of queries and keys and biases of its first projections alone");
  if (mistral && c.attention.bias != models::AttentionBias::none) cannot_write("the model's attention has a window and biases");
  if (type == "llama" && c.width % c.heads != 0) cannot_write("the model's width is no multiple of its heads");
  nlohmann::ordered_json json = llama_fields(c, c.intermediate_width());
  if (type == "llama" || type == "qwen3") json["attention_bias"] = c.attention.bias == models::AttentionBias::all;
  if (type == "llama") json["mlp_bias"] = false;
  if (qwen) write_window(json, c);
  if (mistral) json["sliding_window"] = window_of(c);
  if (type == "ministral") json["layer_types"] = layer_types(c);
  return json;
}

inline nlohmann::ordered_json fields_of(const models::MixtralConfig& c) {
  const bool mixtral = architecture_of(c).type == "mixtral";
  require_mask(c, true, false);
  if (mixtral && c.scores != nn::Scores::after_top_k)
    cannot_write("the router's weights do not add up to 1 (Scores::before_top_k)");
  if (c.bias_rate != 0) cannot_write("the router has a bias (bias_rate)");
  if (c.drop != nn::Drop::none) cannot_write("the router drops tokens");
  if (mixtral && c.attention.bias != models::AttentionBias::none) cannot_write("the model's attention has biases");
  if (c.attention.bias == models::AttentionBias::query_key_value)
    cannot_write("the model's attention has biases of its first projections alone");
  const std::size_t inner = models::llama_of(c).intermediate_width();
  nlohmann::ordered_json json = llama_fields(c, inner);
  json["num_experts_per_tok"] = c.top_k;
  json["output_router_logits"] = c.auxiliary_loss != 0;
  json["router_aux_loss_coef"] = c.auxiliary_loss * double(c.layers) / double(c.top_k);
  if (mixtral) {
    json["num_local_experts"] = c.experts;
    json["router_jitter_noise"] = c.router_jitter;
    json["sliding_window"] = window_of(c);
    return json;
  }
  json["attention_bias"] = c.attention.bias == models::AttentionBias::all;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nlohmann::ordered_json::array();
  json["moe_intermediate_size"] = inner;
  json["norm_topk_prob"] = c.scores == nn::Scores::after_top_k;
  json["num_experts"] = c.experts;
  write_window(json, c);
  return json;
}

}  // namespace weft::hugging_face::detail
