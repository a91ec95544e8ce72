// SPDX-License-Identifier: Apache-2.0
// covers: weft/hugging_face/architecture.hpp weft/hugging_face/config.hpp weft/hugging_face/expected_shapes.hpp
// covers: weft/hugging_face/fields.hpp weft/hugging_face/read_attention.hpp weft/hugging_face/read_fields.hpp
// covers: weft/hugging_face/write_fields.hpp
// The config.json of `transformers`: both spellings, the defaults of every architecture, errors, and the written fields.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/hugging_face/architecture.hpp>
#include <weft/hugging_face/config.hpp>
#include <weft/hugging_face/expected_shapes.hpp>
#include <weft/hugging_face/fields.hpp>
#include <weft/hugging_face/read_attention.hpp>
#include <weft/hugging_face/read_fields.hpp>
#include <weft/hugging_face/write_fields.hpp>

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
      {{"model_type", "gemma2"},
       "model_type is gemma2, and this weft reads gpt2, llama, mistral, ministral, qwen2, qwen3, mixtral and qwen3_moe"},
      {{"model_type", "mixtral"}, "model_type is mixtral, and the config of a llama is asked for"},
      {{"architectures", {"LlamaForSequenceClassification"}}, "architectures has LlamaForSequenceClassification"},
      {{"mlp_bias", true}, "mlp_bias is true"},
      {{"rope_interleaved", true}, "rope_interleaved is true"},
      {{"hidden_act", "gelu"}, "hidden_act is \"gelu\""},
      {{"attention_bias", "some"}, "attention_bias is \"some\": true or false is meant"},
      {{"head_dim", 0}, "head_dim is 0"},
      {{"num_hidden_layers", 1ull << 40}, "num_hidden_layers is 1099511627776: a whole number of 1 to 4096 is meant"},
      {{"rms_norm_eps", -1e-5}, "rms_norm_eps is -1e-05: a number of at least 0 is meant"},
      {{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 8.0}}},
       "rope_scaling.rope_type is \"proportional\": default, linear, dynamic, yarn, longrope or llama3 is meant"},
      {{"rope_scaling", {{"type", "mrope"}, {"factor", 2.0}}}, "rope_scaling.type is \"mrope\": default, linear"},
      {{"rope_scaling", {{"type", "dynamic"}}}, "lacks rope_scaling.factor"},
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}, {"beta_fast", 1}}},
       "rope_scaling.beta_fast is 1: a number above beta_slow is meant"},
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}, {"attention_factor", -1}}},
       "rope_scaling.attention_factor is -1: a number above 0 is meant"},
      {{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 8.0}, {"short_factor", {1.0, 2.0}}, {"long_factor", {1.0}}}},
       "long_factor of its rotary positions has 1 numbers: 2 above 0 are meant"},
      {{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 8.0}, {"short_factor", {1.0, "2"}}}},
       "rope_scaling.short_factor is [1.0,\"2\"]: a list of finite numbers is meant"},
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
      {{"rope_parameters", {{"rope_type", "default"}, {"factor", 2.0}}}, "does not read: rope_parameters.factor"},
      {{"rope_theta", -1.0}, "rope_theta is -1.0: a number above 0 is meant"},
      {{"quantization_config", {{"bits", 4}}}, "has fields that this version of weft does not read: quantization_config"},
      {{"qk_norm", true}, "does not read: qk_norm"},
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
      {{"activation_function", "mish"}, "activation_function is \"mish\": gelu_new, gelu, relu, silu or tanh is meant"},
      {{"n_inner", 0}, "n_inner is 0: a whole number"},
      {{"tie_word_embeddings", 1}, "tie_word_embeddings is 1: true or false is meant"},
      {{"scale_attn_by_inverse_layer_idx", true}, "scale_attn_by_inverse_layer_idx is true"},
      {{"scale_attn_weights", false}, "scale_attn_weights is false"},
      {{"pruned_heads", {{"1", {0}}}}, "pruned_heads is {\"1\":[0]}"},
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

/// A written config is read back equal.
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
  CHECK(again.window_layers == config.window_layers);
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
  five.erase("original_max_position_embeddings");  // then the model's default
  CHECK(read<LlamaConfig>(with(llama_json(), {{"rope_parameters", five}, {"max_position_embeddings", 77}}))
            .attention.rope_scaling.original_sequence == 77);
  const auto other = read<LlamaConfig>(with(llama_json(), {{"attention_bias", true}, {"head_dim", 6}}));
  CHECK(other.attention.bias == AttentionBias::all);
  CHECK(other.attention.head_width == 6);
  CHECK(read<LlamaConfig>(with(llama_json(), {{"head_dim", 4}})).attention.head_width == 0);  // as it would be
  refused<LlamaConfig>(with(llama_json(), {{"rope_scaling", llama3}, {"rope_parameters", {{"rope_type", "default"}}}}),
                       "rope_parameters and rope_scaling disagree");
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
    CHECK(read<LlamaConfig>(types({part, part, part, part})).window_layers.empty());
    const auto mixed = read<LlamaConfig>(types({full, part, full, part}));
    CHECK(mixed.mask.window == 5);
    CHECK(mixed.window_layers == std::vector<bool>{false, true, false, true});
    refused<LlamaConfig>(types({part}), "layer_types has 1 layers, and num_hidden_layers is 4");
    refused<LlamaConfig>(types({"linear_attention", full, full, full}), "layer_types has linear_attention");
    refused<LlamaConfig>(types({part, part, part, part}, false), "and use_sliding_window is not true");
    CHECK(read<LlamaConfig>(with(json, {{"use_sliding_window", true}, {"max_window_layers", 3}})).window_layers ==
          std::vector<bool>{false, false, false, true});
    CHECK(read<LlamaConfig>(with(json, {{"use_sliding_window", true}, {"max_window_layers", 0}, {"sliding_window_pattern", 2}}))
              .window_layers == std::vector<bool>{true, false, true, false});
    json.erase("num_key_value_heads");
    refused<LlamaConfig>(json, "heads(4) % key-value heads(32) != 0");
  }
  refused<LlamaConfig>(with(qwen2, {{"attention_bias", true}}), "does not read: attention_bias");
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
  refused<MixtralConfig>(with(moe, {{"shared_expert_intermediate_size", 64}}), "does not read: shared_expert_intermediate_size");
  refused<MixtralConfig>(with(moe, {{"use_sliding_window", true}, {"max_window_layers", 28}}), "max_window_layers is 28: 0");
  CHECK(read<MixtralConfig>(with(moe, {{"use_sliding_window", true}, {"sliding_window", 7}})).mask.window == 7);
  moe.erase("moe_intermediate_size");
  refused<MixtralConfig>(moe, "lacks moe_intermediate_size");
}

TEST_CASE("a written config reads back, as the architecture with the model's features") {
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
  CHECK(back(c, "mistral").at("sliding_window") == 9);
  c.attention.bias = AttentionBias::all;
  not_written(c, "the model's attention has a window and biases");
  c.attention = {};
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

TEST_CASE("windows of some layers are written as the architecture that has them") {
  LlamaConfig c{.layers = 3, .kv_heads = 2, .intermediate = 12, .mask = {.window = 7}, .window_layers = {true, false, true}};
  const nlohmann::json types = {"sliding_attention", "full_attention", "sliding_attention"};
  CHECK(back(c, "ministral").at("layer_types") == types);
  c.attention.query_key_norm = true;
  CHECK(back(c, "qwen3").at("layer_types") == types);
  c.window_layers = {false, true, true};
  CHECK(back(c, "qwen3").at("max_window_layers") == 1);
  MixtralConfig m{.layers = 2, .kv_heads = 2, .mask = {.window = 7}, .window_layers = {true, false}};
  not_written(m, "some of the model's layers have a window and others do not");
}

TEST_CASE("Mistral: Llama with a window") {
  nlohmann::json json = of_type("mistral");
  const auto config = read<LlamaConfig>(json);
  CHECK(config.mask.window == 4096);
  CHECK(config.sequence == 131072);
  CHECK(read<LlamaConfig>(with(json, {{"sliding_window", nullptr}})).mask.window == 0);
  json.erase("num_key_value_heads");
  refused<LlamaConfig>(json, "heads(4) % key-value heads(8) != 0");
  // The forward of `transformers` has no window in Llama, for any value of the field.
  CHECK(read<LlamaConfig>(with(llama_json(), {{"sliding_window", 5}})).mask.window == 0);
  CHECK(read<LlamaConfig>(with(llama_json(), {{"hidden_act", "swish"}})).width == 16);
  CHECK(read<MixtralConfig>(with(of_type("mixtral"), {{"router_jitter_noise", 0.1}})).router_jitter == 0.1);
}

TEST_CASE("scalings of rotary positions: YaRN, dynamic and longrope, written and read back") {
  using Type = Scaling::Type;
  const auto scaled = [&](const nlohmann::json& rope) {
    const auto config = read<LlamaConfig>(with(llama_json(), {{"max_position_embeddings", 64}, {"rope_scaling", rope}}));
    back(config, "llama");
    return config;
  };
  const auto yarn =
      scaled({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}}).attention.rope_scaling;
  CHECK(yarn == Scaling{.type = Type::yarn, .factor = 4, .low_frequency = 1, .high_frequency = 32, .original_sequence = 16});
  CHECK(yarn.magnitude() == doctest::Approx(0.1 * std::log(4.0) + 1));
  CHECK(scaled({{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 16}}).attention.rope_scaling ==
        yarn);
  CHECK(scaled({{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 0.7}, {"mscale_all_dim", 1.2}})
            .attention.rope_scaling.magnitude() == doctest::Approx((0.07 * std::log(4.0) + 1) / (0.12 * std::log(4.0) + 1)));
  const auto dynamic = scaled({{"rope_type", "dynamic"}, {"factor", 4.0}});
  CHECK(dynamic.sequence == 256);
  CHECK(dynamic.attention.rope_scaling.original_sequence == 64);
  const auto longrope = scaled({{"rope_type", "longrope"},
                                {"original_max_position_embeddings", 16},
                                {"short_factor", {1, 2}},
                                {"long_factor", {1, 8}}})
                            .attention.rope_scaling;
  CHECK(longrope.factor == 4);
  CHECK(longrope.long_factors == std::vector<double>{1, 8});
  CHECK(longrope.magnitude() == doctest::Approx(std::sqrt(1 + std::log(4.0) / std::log(16.0))));
}

TEST_CASE("GPT-2: activations, a width of the MLP, a last projection of its own") {
  for (const auto& [name, activation] : {std::pair("relu", MlpActivation::relu),
                                         {"gelu", MlpActivation::gelu},
                                         {"silu", MlpActivation::silu},
                                         {"swish", MlpActivation::silu},
                                         {"tanh", MlpActivation::tanh},
                                         {"gelu_pytorch_tanh", MlpActivation::gelu_tanh}}) {
    const auto config = read<models::GptConfig>(
        with(gpt_json(), {{"activation_function", name}, {"n_inner", 40}, {"tie_word_embeddings", false}}));
    CHECK(config.activation == activation);
    CHECK(config.intermediate_width() == 40);
    CHECK_FALSE(config.tied);
    const auto written = nlohmann::json::parse(hugging_face::config_text(config, checkpoint::StoredType::f32));
    CHECK(written.at("activation_function") == name);  // as it was
    CHECK(written.at("n_inner") == 40);
    CHECK(written.at("tie_word_embeddings") == false);
  }
  CHECK(read<models::GptConfig>(gpt_json()).tied);
  CHECK(read<models::GptConfig>(with(gpt_json(), {{"n_inner", 64}})).intermediate == 0);
}

TEST_CASE("every known field is written as it was read, used or not") {
  const nlohmann::json tokens = {{"bos_token_id", 1},
                                 {"eos_token_id", {2, 3}},
                                 {"pad_token_id", 0},
                                 {"transformers_version", "4.40.1"},
                                 {"use_cache", false},
                                 {"task_specific_params", {{"a", {1, 2}}}},
                                 {"_name_or_path", nullptr},
                                 {"_commit_hash", "0123"},
                                 {"min_length", 3},
                                 {"num_beams", 4},
                                 {"repetition_penalty", 1.1},
                                 {"suppress_tokens", {4, 5}},
                                 {"forced_eos_token_id", 2},
                                 {"return_dict_in_generate", true},
                                 {"tie_encoder_decoder", false},
                                 {"is_decoder", true},
                                 {"pruned_heads", nlohmann::json::object()},
                                 {"use_mrope", false}};
  const auto kept = [&]<class Config>(Config, nlohmann::json json) {
    json.update(tokens);
    const auto config = read<Config>(json);
    const auto text = hugging_face::config_text(config, checkpoint::StoredType::f32);
    const auto written = nlohmann::json::parse(text);
    for (const auto& [name, value] : json.items())
      if (name != "architectures" && name != "torch_dtype")
        CHECK_MESSAGE(written.value(name, nlohmann::json("lost")) == value, name);
    CHECK(nlohmann::json::parse(hugging_face::config_text(read<Config>(written), checkpoint::StoredType::f32)) == written);
    return std::pair(config, written);
  };
  kept(models::GptConfig(), with(gpt_json(), {{"attn_pdrop", 0.1}, {"resid_pdrop", 0.2}, {"summary_type", "cls_index"}}));
  kept(LlamaConfig(),
       with(llama_json(), {{"head_dim", nullptr}, {"pretraining_tp", 2}, {"sliding_window", 5}, {"rope_scaling", nullptr}}));
  kept(LlamaConfig(), with(of_type("mistral"), {{"sliding_window", nullptr}, {"attention_dropout", 0.1}}));
  kept(LlamaConfig(), with(of_type("qwen3"), {{"max_window_layers", 28},
                                              {"sliding_window", 4096},
                                              {"use_sliding_window", false},
                                              {"layer_types", std::vector<std::string>(4, "full_attention")}}));
  kept(MixtralConfig(), with(of_type("mixtral"), {{"router_aux_loss_coef", 0.03}, {"router_jitter_noise", 0.1}}));
  kept(MixtralConfig(), with(of_type("qwen3_moe"), {{"num_local_experts", 128}, {"intermediate_size", 77}}));
  // Numbers that have changed since are written, in every spelling; token ids stay.
  auto [config, before] =
      kept(LlamaConfig(), with(llama_json(), {{"rope_theta", 5000.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}));
  config.rope_base = 700;
  config.attention.rope_scaling = {};
  config.layers = 2;
  const auto after = nlohmann::json::parse(hugging_face::config_text(config, checkpoint::StoredType::f32));
  CHECK(after.at("rope_theta") == 700);
  CHECK(after.at("rope_parameters").at("rope_theta") == 700);
  CHECK_FALSE(after.contains("rope_scaling"));
  CHECK(after.at("num_hidden_layers") == 2);
  CHECK(after.at("eos_token_id") == nlohmann::json{2, 3});
  config.attention.query_key_norm = true;  // another architecture
  const auto other = nlohmann::json::parse(hugging_face::config_text(config, checkpoint::StoredType::f32));
  CHECK(other.at("model_type") == "qwen3");
  CHECK(other.at("pad_token_id") == 0);
}

TEST_CASE("a config whose numbers the weights do not have is refused by their headers alone") {
  TemporaryFolder place;
  const std::string folder = place.path.string();
  // A header of 2 layers, and its bytes as a hole in the file.
  std::vector<checkpoint::StoredTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::size_t> shape) {
    tensors.push_back({name, checkpoint::StoredType::f32, std::move(shape), 0, 0});
  };
  add("wte.weight", {19, 16});
  add("wpe.weight", {8, 16});
  for (const std::string layer : {"h.0.", "h.1."}) {
    add(layer + "attn.c_attn.weight", {16, 48});
    add(layer + "attn.c_proj.weight", {16, 16});
    add(layer + "mlp.c_fc.weight", {16, 64});
    add(layer + "mlp.c_proj.weight", {64, 16});
  }
  const std::string header = checkpoint::safetensors_header(tensors);
  write(folder + "/model.safetensors", header);
  std::filesystem::resize_file(folder + "/model.safetensors", header.size() + tensors.back().end);
  const auto said_of = [&](const nlohmann::json& changes) {
    write(folder + "/config.json", with(gpt_json(), changes).dump());
    return message_of([&] { hugging_face::read_config<models::GptConfig>(folder); });
  };
  CHECK(said_of(nlohmann::json::object()) == "no error");
  const auto refuses = [&](const nlohmann::json& changes, const char* text) {
    const std::string said = said_of(changes);
    CHECK_MESSAGE(said.find(text) != std::string::npos, said);
  };
  refuses({{"vocab_size", 40'000'000}}, "transformer.wte.weight: is [19, 16], and [40000000, 16] by config.json");
  refuses({{"n_embd", 2'000'000}}, "transformer.wte.weight: is [19, 16], and [19, 2000000] by config.json");
  refuses({{"n_positions", 1u << 30}, {"n_ctx", 1u << 30}}, "transformer.wpe.weight: is [8, 16]");
  refuses({{"n_inner", 1u << 30}}, "transformer.h.0.mlp.c_fc.weight: is [16, 64]");
  refuses({{"n_layer", 4096}},
          "transformer.h.2.attn.c_attn.weight: is not among the weights, and config.json has it, as [16, 48]");
  refuses({{"tie_word_embeddings", false}}, "lm_head.weight: is not among the weights");
}
