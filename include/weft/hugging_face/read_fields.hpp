// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fields of a `transformers` config.json as numbers of weft's configs, with each architecture's defaults. A value that weft's
// models do not support throws an Error that names its field.
//
//   take(fields, architecture, config);   // LlamaConfig for llama, qwen2 or qwen3
//   fields.require_all_read();

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/hugging_face/architecture.hpp>
#include <weft/hugging_face/fields.hpp>
#include <weft/hugging_face/read_attention.hpp>

namespace weft::hugging_face::detail {

inline const Architecture& known_architecture(Fields& fields) {
  const std::string type = fields.text("model_type");
  if (const Architecture* known = find_architecture(type)) return *known;
  std::string all;
  for (const Architecture& one : architectures)
    all += std::string(all.empty() ? "" : &one == &architectures.back() ? " and " : ", ") + std::string(one.type);
  refuse({fields.path()}, {"model_type is ", shown(type), ", and this weft reads ", all});
}

/// Fields of every model. They affect a program's use of logits, or training.
inline constexpr const char* fields_of_every_model[] = {"_name_or_path",
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
                                                        "top_p",
                                                        "name_or_path",
                                                        "_commit_hash",
                                                        "attn_implementation",
                                                        "custom_pipelines",
                                                        "is_decoder",
                                                        "tie_encoder_decoder",
                                                        "use_bfloat16",
                                                        "tf_legacy_loss",
                                                        "cross_attention_hidden_size",
                                                        "min_length",
                                                        "early_stopping",
                                                        "num_beams",
                                                        "num_beam_groups",
                                                        "diversity_penalty",
                                                        "typical_p",
                                                        "repetition_penalty",
                                                        "length_penalty",
                                                        "no_repeat_ngram_size",
                                                        "encoder_no_repeat_ngram_size",
                                                        "bad_words_ids",
                                                        "num_return_sequences",
                                                        "output_scores",
                                                        "return_dict_in_generate",
                                                        "forced_bos_token_id",
                                                        "forced_eos_token_id",
                                                        "remove_invalid_values",
                                                        "exponential_decay_length_penalty",
                                                        "suppress_tokens",
                                                        "begin_suppress_tokens"};

inline void take_common(Fields& fields, const Architecture& architecture) {
  fields.ignore(fields_of_every_model);
  for (const char* name : {"dtype", "torch_dtype"})
    if (const std::string type = fields.text(name, "float32");
        type != "float32" && type != "bfloat16" && type != "float16" && type != "float64")
      fields.unexpected(name, "float32, bfloat16, float16 or float64");
  fields.require("is_encoder_decoder", false, "it has no encoder");
  fields.require("add_cross_attention", false, "it has no cross-attention");
  fields.require("pruned_heads", nlohmann::json::object(), "all heads");
  fields.require("use_mrope", false, "one position for each token");
  fields.require("chunk_size_feed_forward", 0, "the same numbers, in another way");
  for (const std::string& name : fields.texts("architectures"))
    if (name != architecture.class_name && name != architecture.base_name)
      refuse({fields.path()}, {"architectures has ", shown(name), ", and this weft reads ", architecture.class_name, " and ",
                               architecture.base_name});
}

/// Biases in all projections, or in none.
template <class Config>
void take_bias(Fields& fields, Config& config) {
  if (fields.flag("attention_bias", false)) config.attention.bias = models::AttentionBias::all;
}

inline void take_activation(Fields& fields, models::GptConfig& config) {
  const std::string name = fields.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_accurate") config.activation = MlpActivation::gelu_tanh;
  else if (name == "gelu" || name == "gelu_python") config.activation = MlpActivation::gelu;
  else if (name == "relu") config.activation = MlpActivation::relu;
  else if (name == "silu" || name == "swish") config.activation = MlpActivation::silu;
  else if (name == "tanh") config.activation = MlpActivation::tanh;
  else fields.unexpected("activation_function", "gelu_new, gelu, relu, silu or tanh");
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
  config.intermediate = fields.has("n_inner") ? fields.count("n_inner") : 0;
  fields.ignore({"n_inner"});
  if (config.intermediate == 4 * config.width) config.intermediate = 0;
  fields.require("n_ctx", config.sequence, "the positions that it has learned");
  take_activation(fields, config);
  fields.require("scale_attn_weights", true, "scores are divided by the root of a head's width");
  fields.require("scale_attn_by_inverse_layer_idx", false, "scores of all layers are scaled alike");
  fields.require("reorder_and_upcast_attn", false, "scores are scaled after the product");
  config.tied = fields.flag("tie_word_embeddings", true);
  fields.ignore({"attn_pdrop", "embd_pdrop", "resid_pdrop", "summary_activation", "summary_first_dropout",
                 "summary_proj_to_labels", "summary_type", "summary_use_proj", "predict_special_tokens"});
  if (config.width % config.heads != 0)
    refuse({fields.path()}, {"its width(", config.width, ") % heads(", config.heads, ") != 0"});
}

/// The fields that all Llama-like models share.
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
  if (fields.text("hidden_act", "silu") != "swish") fields.require("hidden_act", "silu", "its MLP is SwiGLU");
  fields.ignore({"attention_dropout"});
}

inline void take(Fields& fields, const Architecture& architecture, models::LlamaConfig& config) {
  const std::string_view type = architecture.type;
  const bool llama = type == "llama", qwen3 = type == "qwen3", mistral = type.ends_with("istral");
  take_llama(fields, config, "intermediate_size", 1e-6, 10000, llama ? 2048 : mistral ? 4096 * 32 : 32768);
  take_heads(fields, config, llama ? config.heads : mistral ? 8 : 32, qwen3 ? std::optional<std::size_t>(128) : std::nullopt);
  require_factors(fields, config);
  config.attention.query_key_norm = qwen3;
  if (llama || qwen3) take_bias(fields, config);
  else if (!mistral) config.attention.bias = models::AttentionBias::query_key_value;
  if (llama) {
    fields.require("mlp_bias", false, "its MLP has no biases");
    fields.require("rope_interleaved", false, "a number is rotated with that half a head further");
    fields.ignore({"pretraining_tp"});  // computes the same numbers in slices
    // In this architecture the forward of `transformers` ignores the window.
    fields.ignore({"sliding_window", "use_sliding_window", "max_window_layers"});
    return;
  }
  take_window(fields, config, type);
  if (!mistral) fields.require("use_mrope", false, "positions are numbers, not places in a picture");
}

/// The experts of a mixture. `transformers` has one auxiliary loss over all layers, weft one per layer.
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
    require_factors(fields, config);
    config.router_jitter = fields.number("router_jitter_noise", 0);
    take_window(fields, config, architecture.type);
    return;
  }
  take_llama(fields, config, "moe_intermediate_size", 1e-6, 10000, 32768);
  take_heads(fields, config, 4);
  take_bias(fields, config);
  config.attention.query_key_norm = true;
  require_factors(fields, config);
  take_window(fields, config, architecture.type);
  const std::size_t experts = fields.parts("num_experts", fields.parts("num_local_experts", 128));
  fields.require("num_local_experts", experts, "num_experts is another");
  take_experts(fields, config, experts, 8);
  config.scores = fields.flag("norm_topk_prob", false) ? nn::Scores::after_top_k : nn::Scores::before_top_k;
  fields.require("decoder_sparse_step", 1, "each layer has a mixture");
  fields.require("mlp_only_layers", nlohmann::json::array(), "each layer has a mixture");
  fields.ignore({"intermediate_size"});  // the width of layers without experts
}

}  // namespace weft::hugging_face::detail
