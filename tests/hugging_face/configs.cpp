// SPDX-License-Identifier: Apache-2.0
// config.json of `transformers`: both spellings, the defaults of every architecture, what is refused, and what is written.

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/hugging_face/config.hpp>

#include "support/temporary_folder.hpp"
#include "support/transformers_folders.hpp"

using namespace weft;
using namespace weft_test;

TEST_CASE("both spellings of a config") {
  TemporaryFolder place;
  const std::string folder = place.path.string();
  const auto read = [&](const nlohmann::json& json) {
    write(folder + "/config.json", json.dump());
    return hugging_face::read_config<models::LlamaConfig>(folder);
  };
  nlohmann::json four = llama_json(), five = llama_json();
  four.update({{"rope_theta", 500000.0}, {"rope_scaling", nullptr}, {"torch_dtype", "bfloat16"}});
  five.update(
      {{"rope_parameters", {{"rope_theta", 500000.0}, {"rope_type", "default"}}}, {"dtype", "bfloat16"}, {"head_dim", 4}});
  for (const auto& json : {four, five}) {
    const models::LlamaConfig config = read(json);
    CHECK(config.rope_base == 500000);
    CHECK(config.kv_heads == 2);
    CHECK(config.intermediate == 12);
    CHECK_FALSE(config.tied);
    CHECK(config.epsilon == 1e-5);
  }
  four.erase("rope_theta");
  four.erase("rms_norm_eps");
  CHECK(read(four).rope_base == 10000);  // the defaults of `transformers`
  CHECK(read(four).epsilon == 1e-6);
  CHECK(hugging_face::model_type(folder) == "llama");
}

TEST_CASE("a config that weft's model does not compute is refused by name") {
  TemporaryFolder place;
  const std::string folder = place.path.string();
  const auto refused = [&](const nlohmann::json& json, const char* text) {
    write(folder + "/config.json", json.dump());
    const std::string said = message_of([&] {
      if (json.value("model_type", "") == "gpt2") hugging_face::read_config<models::GptConfig>(folder);
      else hugging_face::read_config<models::LlamaConfig>(folder);
    });
    CHECK_MESSAGE(said.find(text) != std::string::npos, said);
  };
  const auto with = [](nlohmann::json json, const char* name, const nlohmann::json& value) {
    json[name] = value;
    return json;
  };
  const std::vector<std::pair<std::pair<const char*, nlohmann::json>, const char*>> of_llama = {
      {{"model_type", "mistral"}, "model_type is mistral, and this weft reads gpt2, llama, qwen2, qwen3, mixtral and qwen3_moe"},
      {{"model_type", "mixtral"}, "model_type is mixtral, and the config of a llama is asked for"},
      {{"architectures", {"LlamaForSequenceClassification"}}, "architectures has LlamaForSequenceClassification"},
      {{"mlp_bias", true}, "mlp_bias is true"},
      {{"rope_interleaved", true}, "rope_interleaved is true"},
      {{"hidden_act", "gelu"}, "hidden_act is \"gelu\""},
      {{"attention_bias", "some"}, "attention_bias is \"some\": true or false is meant"},
      {{"head_dim", 0}, "head_dim is 0"},
      {{"num_hidden_layers", 1ull << 40}, "num_hidden_layers is 1099511627776: a whole number of 1 to 4096 is meant"},
      {{"rms_norm_eps", -1e-5}, "rms_norm_eps is -1e-05: a number of at least 0 is meant"},
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}}},
       "rope_scaling.rope_type is \"yarn\": default, linear or llama3 is meant"},
      {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}, "rope_scaling.type is \"dynamic\": default, linear or llama3"},
      {{"rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 2.0}}},
       "rope_scaling.type is \"linear\": the rope_type"},
      {{"rope_scaling", {{"rope_type", "linear"}}}, "lacks rope_scaling.factor"},
      {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 0}}}, "rope_parameters.factor is 0: a number above 0 is meant"},
      {{"rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}}},
       "lacks rope_parameters.high_freq_factor"},
      {{"rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}},
       "rope_parameters.high_freq_factor is 4: a number above low_freq_factor is meant"},
      {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}}},
       "rope_parameters.partial_rotary_factor is 0.5"},
      {{"rope_parameters", {{"rope_type", "default"}, {"factor", 2.0}}}, "does not know: rope_parameters.factor"},
      {{"rope_theta", -1.0}, "rope_theta is -1.0: a number above 0 is meant"},
      {{"quantization_config", {{"bits", 4}}}, "has what this weft does not know: quantization_config"},
      {{"sliding_window", 4096}, "does not know: sliding_window"},
      {{"qk_norm", true}, "does not know: qk_norm"},
      {{"num_hidden_layers", 0}, "num_hidden_layers is 0: a whole number of 1 to 2^40 is meant"},
      {{"num_hidden_layers", 2.5}, "num_hidden_layers is 2.5"},
      {{"num_hidden_layers", -3}, "num_hidden_layers is -3"},
      {{"num_key_value_heads", 3}, "heads(4) % key-value heads(3) != 0"},
      {{"hidden_size", 18}, "width(18) % heads(4) != 0"},
      {{"rms_norm_eps", "small"}, "rms_norm_eps is \"small\": a finite number is meant"},
      {{"torch_dtype", "int8"}, "torch_dtype is \"int8\""},
      {{"tie_word_embeddings", 1}, "tie_word_embeddings is 1: true or false is meant"},
      {{"vocab_size", nullptr}, "lacks vocab_size"}};
  for (const auto& [change, text] : of_llama) refused(with(llama_json(), change.first, change.second), text);
  const std::vector<std::pair<std::pair<const char*, nlohmann::json>, const char*>> of_gpt = {
      {{"activation_function", "relu"}, "activation_function is \"relu\""},
      {{"n_inner", 48}, "n_inner is 48, and weft's model has 64"},
      {{"tie_word_embeddings", false}, "tie_word_embeddings is false"},
      {{"scale_attn_by_inverse_layer_idx", true}, "scale_attn_by_inverse_layer_idx is true"},
      {{"scale_attn_weights", false}, "scale_attn_weights is false"},
      {{"add_cross_attention", true}, "add_cross_attention is true"}};
  for (const auto& [change, text] : of_gpt) refused(with(gpt_json(), change.first, change.second), text);
  nlohmann::json twice = with(llama_json(), "rope_theta", 500.0);
  twice["rope_parameters"] = {{"rope_theta", 600.0}};
  refused(twice, "rope_theta is given twice, as 500 and 600");
  const auto refused_text = [&](const std::string& json, const char* text) {
    write(folder + "/config.json", json);
    const std::string said = message_of([&] { hugging_face::read_config<models::LlamaConfig>(folder); });
    CHECK_MESSAGE(said.find(text) != std::string::npos, said);
  };
  refused_text("{\"model_type\":\"llama\",\"model_type\":\"gpt2\"}", "the key model_type comes twice");
  refused_text("[1]", "its JSON is no object");
  refused_text("{\"a\":", "is not the JSON that it should be");
  refused_text(std::string(5000, '['), "nested deeper than 16 levels");
}

namespace {

template <class Config>
Config read(const nlohmann::json& json) {
  TemporaryFolder place;
  write(place.path.string() + "/config.json", json.dump());
  return hugging_face::read_config<Config>(place.path.string());
}
nlohmann::json with(nlohmann::json json, const nlohmann::json& changes) {
  json.update(changes);
  return json;
}
template <class Config>
void refused(const nlohmann::json& json, const char* text) {
  const std::string said = message_of([&] { read<Config>(json); });
  CHECK_MESSAGE(said.find(text) != std::string::npos, said);
}
nlohmann::json of_type(const char* type) {
  nlohmann::json json = llama_json();
  json.erase("architectures");
  json["model_type"] = type;
  if (json["model_type"] == "qwen3_moe") json["moe_intermediate_size"] = 20;
  return json;
}
using Scaling = RopeScaling;
using models::AttentionBias, models::LlamaConfig, models::MixtralConfig;

/// What is written reads back alike.
template <class Config>
nlohmann::json back(const Config& config, const char* type) {
  const nlohmann::json json = nlohmann::json::parse(hugging_face::config_text(config, checkpoint::StoredType::bf16));
  CHECK(json.at("model_type") == type);
  CHECK(json.at("dtype") == "bfloat16");
  const Config again = read<Config>(json);
  const auto same = [](const models::AttentionOptions& a, const models::AttentionOptions& b) {
    return a.head_width == b.head_width && a.bias == b.bias && a.query_key_norm == b.query_key_norm &&
           a.rope_scaling == b.rope_scaling;
  };
  CHECK(same(again.attention, config.attention));
  CHECK(again.rope_base == config.rope_base);
  CHECK(again.epsilon == config.epsilon);
  CHECK(again.mask == config.mask);
  CHECK(again.kv_heads == (config.kv_heads ? config.kv_heads : config.heads));
  CHECK(nlohmann::json::parse(hugging_face::config_text(again, checkpoint::StoredType::bf16)) == json);
  return json;
}
template <class Config>
void not_written(const Config& config, const char* text) {
  const std::string said = message_of([&] { hugging_face::config_text(config, checkpoint::StoredType::f32); });
  CHECK_MESSAGE(said.find(text) != std::string::npos, said);
}

}  // namespace

TEST_CASE("Llama 2 and 3: scaled positions in both spellings, biases, a head width of its own") {
  const nlohmann::json llama3 = {{"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 8192},
                                 {"rope_type", "llama3"}};
  const Scaling expected{
      .type = Scaling::Type::llama3, .factor = 8, .low_frequency = 1, .high_frequency = 4, .original_sequence = 8192};
  nlohmann::json five = llama3;
  five["rope_theta"] = 500000.0;
  for (const auto& json :
       {with(llama_json(), {{"rope_theta", 500000.0}, {"rope_scaling", llama3}}), with(llama_json(), {{"rope_parameters", five}}),
        with(llama_json(), {{"rope_theta", 500000.0}, {"rope_scaling", llama3}, {"rope_parameters", five}})}) {
    const auto config = read<LlamaConfig>(json);
    CHECK(config.attention.rope_scaling == expected);
    CHECK(config.rope_base == 500000);
  }
  for (const char* spelling : {"type", "rope_type"}) {
    const auto config = read<LlamaConfig>(with(llama_json(), {{"rope_scaling", {{spelling, "linear"}, {"factor", 2}}}}));
    CHECK(config.attention.rope_scaling == Scaling{.type = Scaling::Type::linear, .factor = 2});
  }
  five.erase("original_max_position_embeddings");  // then the model's own
  CHECK(read<LlamaConfig>(with(llama_json(), {{"rope_parameters", five}, {"max_position_embeddings", 77}}))
            .attention.rope_scaling.original_sequence == 77);
  const auto other = read<LlamaConfig>(with(llama_json(), {{"attention_bias", true}, {"head_dim", 6}}));
  CHECK(other.attention.bias == AttentionBias::all);
  CHECK(other.attention.head_width == 6);
  CHECK(read<LlamaConfig>(with(llama_json(), {{"head_dim", 4}})).attention.head_width == 0);  // as it would be
  refused<LlamaConfig>(with(llama_json(), {{"rope_scaling", llama3}, {"rope_parameters", {{"rope_type", "default"}}}}),
                       "rope_parameters and rope_scaling say different things");
}

TEST_CASE("Qwen2 and Qwen3: their defaults, and windows of all layers or none") {
  nlohmann::json qwen2 = of_type("qwen2"), qwen3 = of_type("qwen3");
  const auto two = read<LlamaConfig>(qwen2), three = read<LlamaConfig>(qwen3);
  CHECK(two.attention.bias == AttentionBias::query_key_value);
  CHECK_FALSE(two.attention.query_key_norm);
  CHECK(two.attention.head_width == 0);
  CHECK(two.sequence == 32768);
  CHECK(three.attention.bias == AttentionBias::none);
  CHECK(three.attention.query_key_norm);
  CHECK(three.attention.head_width == 128);
  CHECK(three.rope_base == 10000);
  CHECK(read<LlamaConfig>(with(qwen3, {{"attention_bias", true}, {"head_dim", 4}})).attention.bias == AttentionBias::all);
  for (auto json : {qwen2, qwen3}) {
    CHECK(read<LlamaConfig>(with(json, {{"sliding_window", 4096}, {"use_sliding_window", false}})).mask.window == 0);
    CHECK(read<LlamaConfig>(with(json, {{"use_sliding_window", true}, {"max_window_layers", 4}})).mask.window == 0);
    CHECK(read<LlamaConfig>(with(json, {{"use_sliding_window", true}, {"max_window_layers", 0}})).mask.window == 4096);
    const auto types = [&](std::vector<std::string> all, bool used = true) {
      return with(json, {{"sliding_window", 5}, {"use_sliding_window", used}, {"layer_types", all}});
    };
    const std::string full = "full_attention", part = "sliding_attention";
    CHECK(read<LlamaConfig>(types({part, part, part, part})).mask.window == 5);
    CHECK(read<LlamaConfig>(types({full, full, full, full})).mask.window == 0);
    refused<LlamaConfig>(types({full, full, part, part}), "2 of its 4 layers have a sliding window");
    refused<LlamaConfig>(types({part}), "layer_types has 1 layers, and num_hidden_layers is 4");
    refused<LlamaConfig>(types({"linear_attention", full, full, full}), "layer_types has linear_attention");
    refused<LlamaConfig>(types({part, part, part, part}, false), "and use_sliding_window is not true");
    refused<LlamaConfig>(with(json, {{"use_sliding_window", true}, {"max_window_layers", 3}}), "1 of its 4 layers");
    json.erase("num_key_value_heads");
    refused<LlamaConfig>(json, "heads(4) % key-value heads(32) != 0");
  }
  refused<LlamaConfig>(with(qwen2, {{"attention_bias", true}}), "does not know: attention_bias");
  refused<LlamaConfig>(with(qwen3, {{"head_dim", nullptr}}), "head_dim is null: a whole number is meant");
  refused<LlamaConfig>(with(qwen2, {{"use_mrope", true}}), "use_mrope is true");
  refused<MixtralConfig>(qwen2, "model_type is qwen2, and the config of a mixtral is asked for");
}

TEST_CASE("Qwen3-MoE: its defaults, and layers without a mixture") {
  nlohmann::json moe = of_type("qwen3_moe");
  const auto config = read<MixtralConfig>(moe);
  CHECK(config.experts == 128);
  CHECK(config.top_k == 8);
  CHECK(config.intermediate == 20);
  CHECK(config.scores == nn::Scores::before_top_k);
  CHECK(config.attention.query_key_norm);
  CHECK(config.auxiliary_loss == 0);
  CHECK(config.epsilon == 1e-5);
  CHECK(config.mask.window == 0);
  const auto other = read<MixtralConfig>(with(moe, {{"num_experts", 16},
                                                    {"num_experts_per_tok", 4},
                                                    {"norm_topk_prob", true},
                                                    {"output_router_logits", true},
                                                    {"decoder_sparse_step", 1},
                                                    {"mlp_only_layers", nlohmann::json::array()},
                                                    {"sliding_window", nullptr},
                                                    {"max_window_layers", 48}}));
  CHECK(other.experts == 16);
  CHECK(other.scores == nn::Scores::after_top_k);
  CHECK(other.auxiliary_loss == doctest::Approx(0.001));  // 4 experts of a token, 4 layers
  refused<MixtralConfig>(with(moe, {{"decoder_sparse_step", 2}}), "decoder_sparse_step is 2, and weft's model has 1: each layer");
  refused<MixtralConfig>(with(moe, {{"mlp_only_layers", {0}}}), "mlp_only_layers is [0], and weft's model has []");
  refused<MixtralConfig>(with(moe, {{"num_experts", 4}}), "num_experts_per_tok(8) > its experts(4)");
  refused<MixtralConfig>(with(moe, {{"num_experts", 16}, {"num_local_experts", 8}}), "num_local_experts is 8");
  refused<MixtralConfig>(with(moe, {{"shared_expert_intermediate_size", 64}}), "does not know: shared_expert_intermediate_size");
  refused<MixtralConfig>(with(moe, {{"use_sliding_window", true}, {"max_window_layers", 28}}), "max_window_layers is 28: 0");
  CHECK(read<MixtralConfig>(with(moe, {{"use_sliding_window", true}, {"sliding_window", 7}})).mask.window == 7);
  moe.erase("moe_intermediate_size");
  refused<MixtralConfig>(moe, "lacks moe_intermediate_size");
}

TEST_CASE("what is written reads back, as the architecture that has what the model has") {
  const Scaling llama3{.type = Scaling::Type::llama3, .factor = 8, .original_sequence = 64};
  const Scaling linear{.type = Scaling::Type::linear, .factor = 2.5};
  LlamaConfig c{.kv_heads = 2, .intermediate = 12};
  CHECK_FALSE(back(c, "llama").contains("rope_scaling"));
  c.attention = {.head_width = 32, .bias = AttentionBias::all, .rope_scaling = llama3};
  const auto json = back(c, "llama");
  CHECK(json.at("head_dim") == 32);
  CHECK(json.at("rope_scaling").at("rope_type") == "llama3");
  CHECK(json.at("rope_parameters").at("low_freq_factor") == 1.0);
  c.attention = {.bias = AttentionBias::query_key_value, .rope_scaling = linear};
  CHECK_FALSE(back(c, "qwen2").contains("attention_bias"));
  c.mask.window = 9;
  CHECK(back(c, "qwen2").at("max_window_layers") == 0);
  c.attention = {.query_key_norm = true};
  CHECK(back(c, "qwen3").at("head_dim") == 64);
  c.attention.bias = AttentionBias::query_key_value;
  not_written(c, "has norms of queries and keys and biases of its first projections alone");
  c.attention = {};
  not_written(c, "the model's attention has a window");
  c.mask = {};
  c.width = 380;
  c.attention.head_width = 64;
  not_written(c, "the model's width is no multiple of its heads");

  MixtralConfig m{.kv_heads = 2, .intermediate = 12, .auxiliary_loss = 0.25, .level = nn::Level::micro_batch};
  m.attention.head_width = 32;
  back(m, "mixtral");
  m.attention.bias = AttentionBias::all;
  not_written(m, "the model's attention has biases");
  m.attention.query_key_norm = true;
  m.mask.window = 4;
  for (const auto scores : {nn::Scores::after_top_k, nn::Scores::before_top_k}) {
    m.scores = scores;
    CHECK(back(m, "qwen3_moe").at("norm_topk_prob") == (scores == nn::Scores::after_top_k));
  }
  CHECK(hugging_face::detail::stored_name("model.layers.3.block_sparse_moe.experts.12.w3.weight",
                                          hugging_face::detail::architecture_of(m)) ==
        "model.layers.3.mlp.experts.12.up_proj.weight");
}
