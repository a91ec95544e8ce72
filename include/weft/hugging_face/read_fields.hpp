// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fields of a config.json of `transformers` as numbers of weft's configs, with the defaults of each architecture. A value
// that weft's models do not compute is refused by the name of its field.
//
//   take(fields, architecture, config);   // LlamaConfig of llama, qwen2 or qwen3
//   fields.finish();

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/hugging_face/architecture.hpp>
#include <weft/hugging_face/fields.hpp>

namespace weft::hugging_face::detail {

inline const Architecture& known_architecture(Fields& fields) {
  const std::string type = fields.text("model_type");
  if (const Architecture* known = find_architecture(type)) return *known;
  std::string all;
  for (const Architecture& one : architectures)
    all += std::string(all.empty() ? "" : &one == &architectures.back() ? " and " : ", ") + std::string(one.type);
  refuse({fields.path()}, {"model_type is ", shown(type), ", and this weft reads ", all});
}

/// Fields of every model. Their values bear on what a program does with logits, or on training.
inline void take_common(Fields& fields, const Architecture& architecture) {
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
                 "_num_labels",
                 "is_llama_config",
                 "transformers.js_config",
                 "unsloth_fixed",
                 "unsloth_version",
                 "_attn_implementation",
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
    if (name != architecture.class_name && name != architecture.base_name)
      refuse({fields.path()}, {"architectures has ", shown(name), ", and this weft reads ", architecture.class_name, " and ",
                               architecture.base_name});
}

/// What one of the two spellings, rope_parameters and rope_scaling, says of the scaling.
inline RopeScaling take_scaling(Fields& rope, std::size_t sequence) {
  RopeScaling scaling;
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (rope.has("type") && rope.text("type") != type) rope.unexpected("type", "the rope_type");
  if (type == "linear") scaling.type = RopeScaling::Type::linear;
  else if (type == "llama3") scaling.type = RopeScaling::Type::llama3;
  else if (type != "default") rope.unexpected(rope.has("rope_type") ? "rope_type" : "type", "default, linear or llama3");
  if (scaling.type == RopeScaling::Type::none) return scaling;
  scaling.factor = rope.number("factor");
  if (scaling.factor <= 0) rope.unexpected("factor", "a number above 0");
  if (scaling.type != RopeScaling::Type::llama3) return scaling;
  scaling.low_frequency = rope.number("low_freq_factor");
  scaling.high_frequency = rope.number("high_freq_factor");
  scaling.original_sequence = rope.count("original_max_position_embeddings", sequence);
  if (scaling.low_frequency <= 0) rope.unexpected("low_freq_factor", "a number above 0");
  if (scaling.high_frequency <= scaling.low_frequency) rope.unexpected("high_freq_factor", "a number above low_freq_factor");
  return scaling;
}

/// The base and the scaling of rotary positions, in one of their spellings or in both alike.
template <class Config>
void take_rope(Fields& fields, Config& config, double base) {
  bool said = false;
  config.rope_base = base;
  const auto take_base = [&](Fields& place) {
    if (!place.has("rope_theta")) return;
    const double value = place.number("rope_theta");
    if (value <= 0) place.unexpected("rope_theta", "a number above 0");
    if (said && value != config.rope_base)
      refuse({fields.path()}, {"rope_theta is given twice, as ", checkpoint::detail::number_text(config.rope_base), " and ",
                               checkpoint::detail::number_text(value)});
    config.rope_base = value;
    said = true;
  };
  take_base(fields);
  std::optional<RopeScaling> scaling;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const bool there = fields.has(name);
    Fields rope = fields.fields(name);
    const RopeScaling read = take_scaling(rope, config.sequence);
    rope.require("partial_rotary_factor", 1.0, "a head is rotated as a whole");
    take_base(rope);
    rope.finish();
    if (!there) continue;
    if (scaling && *scaling != read)
      refuse({fields.path()}, {"rope_parameters and rope_scaling say different things of the rotary positions"});
    scaling = read;
  }
  config.attention.rope_scaling = scaling.value_or(RopeScaling());
  fields.require("partial_rotary_factor", 1.0, "a head is rotated as a whole");
}

/// Key-value heads and the width of a head; `kv_heads` and `head_width` are the architecture's if the fields are not there.
template <class Config>
void take_heads(Fields& fields, Config& config, std::size_t kv_heads, std::optional<std::size_t> head_width = std::nullopt) {
  config.kv_heads = fields.count("num_key_value_heads", fields.is_null("num_key_value_heads") ? config.heads : kv_heads);
  if (config.heads % config.kv_heads != 0)
    refuse({fields.path()}, {"its heads(", config.heads, ") % key-value heads(", config.kv_heads, ") != 0"});
  if (head_width && fields.is_null("head_dim")) fields.unexpected("head_dim", "a whole number");
  if (!fields.has("head_dim") && !head_width) {
    if (config.width % config.heads != 0)
      refuse({fields.path()}, {"its width(", config.width, ") % heads(", config.heads, ") != 0"});
    fields.ignore({"head_dim"});
    return;
  }
  const std::size_t width = fields.count("head_dim", head_width);
  config.attention.head_width = config.width % config.heads == 0 && width == config.width / config.heads ? 0 : width;
}

/// The window of all layers. `by_layer`: the architecture says of each layer whether it has it.
template <class Config>
void take_window(Fields& fields, Config& config, bool by_layer) {
  const bool used = fields.flag("use_sliding_window", false) && !fields.is_null("sliding_window");
  const std::size_t window = used ? fields.count("sliding_window", 4096) : 0;
  fields.ignore({"sliding_window"});
  const double first = fields.number("max_window_layers", by_layer ? 28 : 0);
  std::size_t with = 0;
  std::vector<std::string> types;
  if (by_layer) types = fields.texts("layer_types");
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      refuse({fields.path()}, {"layer_types has ", shown(type), ", and weft's models have full_attention and sliding_attention"});
    with += type == "sliding_attention";
  }
  if (!types.empty() && types.size() != config.layers)
    refuse({fields.path()}, {"layer_types has ", types.size(), " layers, and num_hidden_layers is ", config.layers});
  if (!by_layer && used && first != 0)
    fields.unexpected("max_window_layers", "0, since versions of `transformers` differ in what it says beside a mixture,");
  if (types.empty() && used)
    for (std::size_t layer = 0; layer < config.layers; ++layer) with += double(layer) >= first;
  if (with != 0 && !used) refuse({fields.path()}, {"layer_types has sliding_attention, and use_sliding_window is not true"});
  if (with != 0 && with != config.layers)
    refuse({fields.path()},
           {with, " of its ", config.layers, " layers have a sliding window (layer_types, max_window_layers), and ",
            "weft's model has one for all or none"});
  if (with != 0) config.mask.window = window;
}

/// Biases of all projections, or none.
template <class Config>
void take_bias(Fields& fields, Config& config) {
  if (fields.flag("attention_bias", false)) config.attention.bias = models::AttentionBias::all;
}

inline void take(Fields& fields, const Architecture&, models::GptConfig& config) {
  config.vocabulary = fields.count("vocab_size");
  config.layers = fields.parts("n_layer");
  config.width = fields.count("n_embd");
  config.heads = fields.count("n_head");
  config.kv_heads = 0;
  config.sequence = fields.count("n_positions");
  config.epsilon = fields.number("layer_norm_epsilon", 1e-5);
  if (config.epsilon < 0) fields.unexpected("layer_norm_epsilon", "a number of at least 0");
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
  if (config.width % config.heads != 0)
    refuse({fields.path()}, {"its width(", config.width, ") % heads(", config.heads, ") != 0"});
}

/// What Llama's relatives share.
template <class Config>
void take_llama(Fields& fields, Config& config, const char* intermediate, double epsilon, double rope_base,
                std::size_t sequence) {
  config.vocabulary = fields.count("vocab_size");
  config.layers = fields.parts("num_hidden_layers");
  config.width = fields.count("hidden_size");
  config.heads = fields.count("num_attention_heads");
  config.intermediate = fields.count(intermediate);
  config.sequence = fields.count("max_position_embeddings", sequence);
  config.epsilon = fields.number("rms_norm_eps", epsilon);
  if (config.epsilon < 0) fields.unexpected("rms_norm_eps", "a number of at least 0");
  config.standard_deviation = fields.number("initializer_range", 0.02);
  take_rope(fields, config, rope_base);
  config.tied = fields.flag("tie_word_embeddings", false);
  fields.require("hidden_act", "silu", "its MLP is SwiGLU");
  fields.ignore({"attention_dropout"});
}

inline void take(Fields& fields, const Architecture& architecture, models::LlamaConfig& config) {
  const bool llama = architecture.type == "llama", qwen3 = architecture.type == "qwen3";
  take_llama(fields, config, "intermediate_size", 1e-6, 10000, llama ? 2048 : 32768);
  if (llama) take_heads(fields, config, config.heads);
  else take_heads(fields, config, 32, qwen3 ? std::optional<std::size_t>(128) : std::nullopt);
  config.attention.query_key_norm = qwen3;
  if (llama || qwen3) take_bias(fields, config);
  else config.attention.bias = models::AttentionBias::query_key_value;
  if (!llama) {
    take_window(fields, config, true);
    fields.require("use_mrope", false, "positions are numbers, not places in a picture");
    return;
  }
  fields.require("mlp_bias", false, "its MLP has no biases");
  fields.require("rope_interleaved", false, "a number is rotated with that half a head further");
  fields.ignore({"pretraining_tp"});  // the same numbers, from slices
}

/// The experts of a mixture. The auxiliary loss of `transformers` is one over all layers, weft's one for each layer.
inline void take_experts(Fields& fields, models::MixtralConfig& config, std::size_t experts, std::size_t top_k) {
  config.experts = experts;
  config.top_k = fields.count("num_experts_per_tok", top_k);
  if (config.top_k > config.experts)
    refuse({fields.path()}, {"num_experts_per_tok(", config.top_k, ") > its experts(", config.experts, ")"});
  const double loss = fields.number("router_aux_loss_coef", 0.001);
  const bool used = fields.flag("output_router_logits", false);
  config.auxiliary_loss = used ? loss * double(config.top_k) / double(config.layers) : 0;
  config.level = nn::Level::micro_batch;
}

inline void take(Fields& fields, const Architecture& architecture, models::MixtralConfig& config) {
  if (architecture.type == "mixtral") {
    take_llama(fields, config, "intermediate_size", 1e-5, 1e6, 4096 * 32);
    take_heads(fields, config, 8);
    take_experts(fields, config, fields.parts("num_local_experts", 8), 2);
    config.scores = nn::Scores::after_top_k;
    fields.require("router_jitter_noise", 0.0, "its router has no noise");
    if (fields.has("sliding_window")) config.mask.window = fields.count("sliding_window");
    else fields.ignore({"sliding_window"});
    return;
  }
  take_llama(fields, config, "moe_intermediate_size", 1e-6, 10000, 32768);
  take_heads(fields, config, 4);
  take_bias(fields, config);
  config.attention.query_key_norm = true;
  take_window(fields, config, false);
  const std::size_t experts = fields.parts("num_experts", fields.parts("num_local_experts", 128));
  fields.require("num_local_experts", experts, "num_experts is another");
  take_experts(fields, config, experts, 8);
  config.scores = fields.flag("norm_topk_prob", false) ? nn::Scores::after_top_k : nn::Scores::before_top_k;
  fields.require("decoder_sparse_step", 1, "each layer has a mixture");
  fields.require("mlp_only_layers", nlohmann::json::array(), "each layer has a mixture");
  fields.ignore({"intermediate_size"});  // of the layers without one
}

}  // namespace weft::hugging_face::detail
