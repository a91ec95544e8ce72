// SPDX-License-Identifier: Apache-2.0
#pragma once
// The config.json of a folder of `transformers`, as the config of weft's model and back. Both spellings are read, that of version
// 4 (rope_theta, torch_dtype) and that of 5 (rope_parameters, dtype); the latter is written. What weft's models do not compute is
// refused by its name.
//
//   auto config = hugging_face::read_config<models::LlamaConfig>("llama");   // then models::Llama, and hugging_face::load
//
// Dropout is of training and not taken over: weft has one number for it, `transformers` up to three (weft's is written in each
// place that weft has). The auxiliary loss of Mixtral is one over all layers there and one for each layer here: its coefficient
// is multiplied by top_k / layers, and by the reverse when it is written.

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/core/error.hpp>
#include <weft/hugging_face/fields.hpp>
#include <weft/models/gpt.hpp>
#include <weft/models/llama.hpp>
#include <weft/models/mixtral.hpp>

namespace weft::hugging_face {

using checkpoint::Error;
using checkpoint::FileSystem;

namespace detail {

inline constexpr const char* config_name = "config.json";

// `model_type` in config.json, and the architecture with the last projection.
constexpr std::string_view type_of(const models::GptConfig&) { return "gpt2"; }
constexpr std::string_view type_of(const models::LlamaConfig&) { return "llama"; }
constexpr std::string_view type_of(const models::MixtralConfig&) { return "mixtral"; }
constexpr std::string_view class_of(const models::GptConfig&) { return "GPT2LMHeadModel"; }
constexpr std::string_view class_of(const models::LlamaConfig&) { return "LlamaForCausalLM"; }
constexpr std::string_view class_of(const models::MixtralConfig&) { return "MixtralForCausalLM"; }
// The architecture without it.
constexpr std::string_view base_class_of(const models::GptConfig&) { return "GPT2Model"; }
constexpr std::string_view base_class_of(const models::LlamaConfig&) { return "LlamaModel"; }
constexpr std::string_view base_class_of(const models::MixtralConfig&) { return "MixtralModel"; }

inline std::string known_type(Fields& fields) {
  const std::string type = fields.text("model_type");
  if (type != "gpt2" && type != "llama" && type != "mixtral")
    refuse({fields.path()}, {"model_type is ", shown(type), ", and this weft reads gpt2, llama and mixtral"});
  return type;
}

/// Fields of every model. Their values bear on what a program does with logits, or on training.
inline void take_common(Fields& fields, std::string_view with_head, std::string_view without) {
  fields.ignore({"_name_or_path",
                 "transformers_version",
                 "use_cache",
                 "bos_token_id",
                 "eos_token_id",
                 "pad_token_id",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "task_specific_params",
                 "initializer_range",
                 "output_attentions",
                 "output_hidden_states",
                 "return_dict",
                 "use_return_dict",
                 "torchscript",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "problem_type",
                 "finetuning_task",
                 "prefix",
                 "tokenizer_class",
                 "gradient_checkpointing",
                 "output_past",
                 "_attn_implementation_autoset",
                 "max_length",
                 "do_sample",
                 "temperature",
                 "top_k",
                 "top_p"});
  for (const char* name : {"dtype", "torch_dtype"})
    if (const std::string type = fields.text(name, "float32");
        type != "float32" && type != "bfloat16" && type != "float16" && type != "float64")
      fields.unexpected(name, "float32, bfloat16, float16 or float64");
  fields.require("is_encoder_decoder", false, "it has no encoder");
  fields.require("add_cross_attention", false, "it has no cross-attention");
  fields.require("chunk_size_feed_forward", 0, "the same numbers, in another way");
  for (const std::string& name : fields.texts("architectures"))
    if (name != with_head && name != without)
      refuse({fields.path()}, {"architectures has ", shown(name), ", and this weft reads ", with_head, " and ", without});
}

/// The base of rotary positions, in one of its spellings. Another rope_type than the default is refused.
inline double take_rope(Fields& fields, double other) {
  double base = other;
  bool said = false;
  const auto take = [&](Fields& place, const std::string& name) {
    if (!place.has(name)) return;
    const double value = place.number(name);
    if (value <= 0) place.unexpected(name, "a number above 0");
    if (said && value != base)
      refuse({fields.path()}, {name, " is given twice, as ", checkpoint::detail::number_text(base), " and ",
                               checkpoint::detail::number_text(value)});
    base = value;
    said = true;
  };
  take(fields, "rope_theta");
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    Fields rope = fields.fields(name);
    for (const char* type : {"rope_type", "type"}) rope.require(type, "default", "its rotary positions are not scaled");
    rope.require("partial_rotary_factor", 1.0, "a head is rotated as a whole");
    take(rope, "rope_theta");
    rope.finish();
  }
  fields.require("partial_rotary_factor", 1.0, "a head is rotated as a whole");
  return base;
}

inline void require_heads(const Fields& fields, std::size_t width, std::size_t heads, std::size_t kv_heads) {
  if (width % heads != 0) refuse({fields.path()}, {"its width(", width, ") % heads(", heads, ") != 0"});
  if (heads % kv_heads != 0) refuse({fields.path()}, {"its heads(", heads, ") % key-value heads(", kv_heads, ") != 0"});
}

inline void take(Fields& fields, models::GptConfig& config) {
  config.vocabulary = fields.count("vocab_size");
  config.layers = fields.count("n_layer");
  config.width = fields.count("n_embd");
  config.heads = fields.count("n_head");
  config.kv_heads = 0;
  config.sequence = fields.count("n_positions");
  config.epsilon = fields.number("layer_norm_epsilon", 1e-5);
  config.standard_deviation = fields.number("initializer_range", 0.02);
  fields.require("n_inner", 4 * config.width, "its MLP is four times as wide as the model");
  fields.require("n_ctx", config.sequence, "the positions that it has learned");
  if (const std::string name = fields.text("activation_function", "gelu_new"); name != "gelu_new" && name != "gelu_pytorch_tanh")
    fields.unexpected("activation_function", "gelu_new or gelu_pytorch_tanh");
  fields.require("scale_attn_weights", true, "scores are divided by the root of a head's width");
  fields.require("scale_attn_by_inverse_layer_idx", false, "scores of all layers are scaled alike");
  fields.require("reorder_and_upcast_attn", false, "scores are scaled after the product");
  fields.require("tie_word_embeddings", true, "the last projection is the embedding's table");
  fields.ignore({"attn_pdrop", "embd_pdrop", "resid_pdrop", "summary_activation", "summary_first_dropout",
                 "summary_proj_to_labels", "summary_type", "summary_use_proj", "predict_special_tokens"});
  require_heads(fields, config.width, config.heads, config.heads);
}

/// What Llama and Mixtral share.
template <class Config>
void take_llama(Fields& fields, Config& config, double epsilon, double rope_base, std::size_t sequence) {
  config.vocabulary = fields.count("vocab_size");
  config.layers = fields.count("num_hidden_layers");
  config.width = fields.count("hidden_size");
  config.heads = fields.count("num_attention_heads");
  config.intermediate = fields.count("intermediate_size");
  config.sequence = fields.count("max_position_embeddings", sequence);
  config.epsilon = fields.number("rms_norm_eps", epsilon);
  config.standard_deviation = fields.number("initializer_range", 0.02);
  config.rope_base = take_rope(fields, rope_base);
  config.tied = fields.flag("tie_word_embeddings", false);
  fields.require("hidden_act", "silu", "its MLP is SwiGLU");
  fields.ignore({"attention_dropout"});
}

inline void take(Fields& fields, models::LlamaConfig& config) {
  take_llama(fields, config, 1e-6, 10000, 2048);
  config.kv_heads = fields.count("num_key_value_heads", config.heads);
  require_heads(fields, config.width, config.heads, config.kv_heads);
  fields.require("head_dim", config.width / config.heads, "a head's width is the model's over the heads");
  fields.require("attention_bias", false, "its attention has no biases");
  fields.require("mlp_bias", false, "its MLP has no biases");
  fields.ignore({"pretraining_tp"});  // the same numbers, from slices
}

inline void take(Fields& fields, models::MixtralConfig& config) {
  take_llama(fields, config, 1e-5, 1e6, 4096 * 32);
  config.kv_heads = fields.count("num_key_value_heads", fields.is_null("num_key_value_heads") ? config.heads : 8);
  require_heads(fields, config.width, config.heads, config.kv_heads);
  fields.require("head_dim", config.width / config.heads, "a head's width is the model's over the heads");
  config.experts = fields.count("num_local_experts", 8);
  config.top_k = fields.count("num_experts_per_tok", 2);
  if (config.top_k > config.experts)
    refuse({fields.path()}, {"num_experts_per_tok(", config.top_k, ") > num_local_experts(", config.experts, ")"});
  config.scores = nn::Scores::after_top_k;
  const double loss = fields.number("router_aux_loss_coef", 0.001);
  const bool used = fields.flag("output_router_logits", false);
  config.auxiliary_loss = used ? loss * double(config.top_k) / double(config.layers) : 0;
  config.level = nn::Level::micro_batch;
  fields.require("router_jitter_noise", 0.0, "its router has no noise");
  if (fields.has("sliding_window")) config.mask.window = fields.count("sliding_window");
  else fields.ignore({"sliding_window"});
}

template <class Config>
constexpr bool is_known = std::is_same_v<Config, models::GptConfig> || std::is_same_v<Config, models::LlamaConfig> ||
                          std::is_same_v<Config, models::MixtralConfig>;

/// True, or an error of the compiler: `transformers` knows a model by its architecture, and a user's has none.
template <class Model>
constexpr bool require_known() {
  static_assert(
      is_known<typename Model::Config>,
      "weft: hugging_face::load and save are of models::Gpt, Llama and Mixtral; checkpoint::load and save of every model");
  return is_known<typename Model::Config>;
}

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
inline nlohmann::ordered_json fields_of(const models::LlamaConfig& c) {
  require_plain(c.mask, false);
  return {{"attention_bias", false},
          {"attention_dropout", 0.0},
          {"hidden_act", "silu"},
          {"hidden_size", c.width},
          {"initializer_range", c.standard_deviation},
          {"intermediate_size", c.intermediate_width()},
          {"max_position_embeddings", c.sequence},
          {"mlp_bias", false},
          {"num_attention_heads", c.heads},
          {"num_hidden_layers", c.layers},
          {"num_key_value_heads", c.kv_heads ? c.kv_heads : c.heads},
          {"rms_norm_eps", c.epsilon},
          {"rope_parameters", {{"rope_theta", c.rope_base}, {"rope_type", "default"}}},
          {"rope_theta", c.rope_base},  // for version 4
          {"tie_word_embeddings", c.tied},
          {"vocab_size", c.vocabulary}};
}
inline nlohmann::ordered_json fields_of(const models::MixtralConfig& c) {
  require_plain(c.mask, true);
  if (c.scores != nn::Scores::after_top_k) cannot_write("the router's weights do not add up to 1 (Scores::before_top_k)");
  if (c.bias_rate != 0) cannot_write("the router has a bias (bias_rate)");
  if (c.drop != nn::Drop::none) cannot_write("the router drops tokens");
  models::LlamaConfig llama = models::llama_of(c);
  llama.mask = {};
  nlohmann::ordered_json json = fields_of(llama);
  json.erase("attention_bias");
  json.erase("mlp_bias");
  json["num_experts_per_tok"] = c.top_k;
  json["num_local_experts"] = c.experts;
  json["output_router_logits"] = c.auxiliary_loss != 0;
  json["router_aux_loss_coef"] = c.auxiliary_loss * double(c.layers) / double(c.top_k);
  json["sliding_window"] = c.mask.window != 0 ? nlohmann::ordered_json(c.mask.window) : nlohmann::ordered_json();
  return json;
}

}  // namespace detail

/// Which of weft's models a folder is of: "gpt2", "llama" or "mixtral". Throws Error for every other.
inline std::string model_type(const std::string& folder, FileSystem& system = FileSystem::system()) {
  detail::Fields fields = detail::Fields::open(checkpoint::detail::in_folder(folder, detail::config_name), system);
  return detail::known_type(fields);
}

/// The config of a folder: GptConfig, LlamaConfig or MixtralConfig, whichever its model_type names. `sequence` is the longest
/// that the model was made for; rotary positions take any other. Throws Error for another model_type and for what weft's model
/// does not compute, by its name.
template <class Config>
Config read_config(const std::string& folder, FileSystem& system = FileSystem::system()) {
  static_assert(detail::is_known<Config>, "weft: read_config<Config>: Config is models::GptConfig, LlamaConfig or MixtralConfig");
  Config config;
  if constexpr (detail::is_known<Config>) {
    detail::Fields fields = detail::Fields::open(checkpoint::detail::in_folder(folder, detail::config_name), system);
    if (const std::string type = detail::known_type(fields); type != detail::type_of(config))
      detail::refuse({fields.path()},
                     {"model_type is ", type, ", and the config of a ", detail::type_of(config), " is asked for"});
    detail::take_common(fields, detail::class_of(config), detail::base_class_of(config));
    detail::take(fields, config);
    fields.finish();
  }
  return config;
}

/// The text of config.json. `type`: of the parameters. Throws UsageError for a model that `transformers` does not have.
template <class Config>
std::string config_text(const Config& config, checkpoint::StoredType type) {
  using checkpoint::StoredType;
  nlohmann::ordered_json json = detail::fields_of(config);
  json["architectures"] = {detail::class_of(config)};
  json["model_type"] = detail::type_of(config);
  const char* name = type == StoredType::bf16  ? "bfloat16"
                     : type == StoredType::f16 ? "float16"
                     : type == StoredType::f64 ? "float64"
                                               : "float32";
  json["dtype"] = json["torch_dtype"] = name;
  return json.dump(2) + "\n";
}

}  // namespace weft::hugging_face
