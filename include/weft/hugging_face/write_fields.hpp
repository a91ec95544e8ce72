// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers of weft's configs as fields of a config.json, for version 5 of `transformers` and, where it is spelled otherwise,
// for version 4 too. What an architecture does not have is refused.
//
//   nlohmann::ordered_json json = fields_of(config);

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <weft/core/error.hpp>
#include <weft/hugging_face/architecture.hpp>

namespace weft::hugging_face::detail {

[[noreturn]] inline void cannot_write(std::string_view what) {
  throw UsageError("hugging_face::save: " + std::string(what) + ", which `transformers` has not in this architecture");
}
inline void require_plain(const AttentionMask& mask, bool window) {
  if (!mask.causal) cannot_write("the model's attention is not causal");
  if (!window && mask.window != 0) cannot_write("the model's attention has a window");
}

inline nlohmann::ordered_json fields_of(const models::GptConfig& c) {
  require_plain(c.mask, false);
  if (c.kv_heads != 0 && c.kv_heads != c.heads) cannot_write("the model has grouped heads");
  return {{"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", c.dropout},
          {"initializer_range", c.standard_deviation},
          {"layer_norm_epsilon", c.epsilon},
          {"n_embd", c.width},
          {"n_head", c.heads},
          {"n_inner", nullptr},
          {"n_layer", c.layers},
          {"n_positions", c.sequence},
          {"resid_pdrop", c.dropout},
          {"tie_word_embeddings", true},
          {"vocab_size", c.vocabulary}};
}

/// {"rope_type", and the numbers of that type}.
inline nlohmann::ordered_json rope_fields(const RopeScaling& scaling) {
  if (scaling.type == RopeScaling::Type::none) return {{"rope_type", "default"}};
  const bool linear = scaling.type == RopeScaling::Type::linear;
  nlohmann::ordered_json json = {{"factor", scaling.factor}, {"rope_type", linear ? "linear" : "llama3"}};
  if (linear) return json;
  json["high_freq_factor"] = scaling.high_frequency;
  json["low_freq_factor"] = scaling.low_frequency;
  json["original_max_position_embeddings"] = scaling.original_sequence;
  return json;
}

/// What Llama's relatives share.
template <class Config>
nlohmann::ordered_json llama_fields(const Config& c, std::size_t intermediate) {
  nlohmann::ordered_json rope = rope_fields(c.attention.rope_scaling);
  nlohmann::ordered_json json = {{"attention_dropout", 0.0},
                                 {"hidden_act", "silu"},
                                 {"hidden_size", c.width},
                                 {"initializer_range", c.standard_deviation},
                                 {"intermediate_size", intermediate},
                                 {"max_position_embeddings", c.sequence},
                                 {"num_attention_heads", c.heads},
                                 {"num_hidden_layers", c.layers},
                                 {"num_key_value_heads", c.kv_heads ? c.kv_heads : c.heads},
                                 {"rms_norm_eps", c.epsilon}};
  const bool qwen3 = c.attention.query_key_norm;  // its own default is another
  if (c.attention.head_width != 0 || qwen3)
    json["head_dim"] = c.attention.head_width ? c.attention.head_width : c.width / c.heads;
  if (c.attention.rope_scaling.type != RopeScaling::Type::none) json["rope_scaling"] = rope;  // for version 4
  rope["rope_theta"] = c.rope_base;
  json["rope_parameters"] = std::move(rope);
  json["rope_theta"] = c.rope_base;  // for version 4
  json["tie_word_embeddings"] = c.tied;
  json["vocab_size"] = c.vocabulary;
  return json;
}
/// Qwen's, of all layers.
inline void write_window(nlohmann::ordered_json& json, const AttentionMask& mask) {
  json["use_sliding_window"] = mask.window != 0;
  if (mask.window == 0) return;
  json["sliding_window"] = mask.window;
  json["max_window_layers"] = 0;
}

inline nlohmann::ordered_json fields_of(const models::LlamaConfig& c) {
  const std::string_view type = architecture_of(c).type;
  require_plain(c.mask, type != "llama");
  if (type == "qwen3" && c.attention.bias == models::AttentionBias::query_key_value)
    cannot_write("the model's attention has norms of queries and keys and biases of its first projections alone");
  if (type == "llama" && c.width % c.heads != 0) cannot_write("the model's width is no multiple of its heads");
  nlohmann::ordered_json json = llama_fields(c, c.intermediate_width());
  if (type != "qwen2") json["attention_bias"] = c.attention.bias == models::AttentionBias::all;
  if (type == "llama") json["mlp_bias"] = false;
  else write_window(json, c.mask);
  return json;
}

inline nlohmann::ordered_json fields_of(const models::MixtralConfig& c) {
  const bool mixtral = architecture_of(c).type == "mixtral";
  require_plain(c.mask, true);
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
    json["sliding_window"] = c.mask.window != 0 ? nlohmann::ordered_json(c.mask.window) : nlohmann::ordered_json();
    return json;
  }
  json["attention_bias"] = c.attention.bias == models::AttentionBias::all;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nlohmann::ordered_json::array();
  json["moe_intermediate_size"] = inner;
  json["norm_topk_prob"] = c.scores == nn::Scores::after_top_k;
  json["num_experts"] = c.experts;
  write_window(json, c.mask);
  return json;
}

}  // namespace weft::hugging_face::detail
