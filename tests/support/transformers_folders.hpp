// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hand-written folders of `transformers`: files, small configs, and the messages of errors.

#include <doctest/doctest.h>

#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

namespace weft_test {

inline std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE_MESSAGE(in, path);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

inline nlohmann::json gpt_json() {
  return {{"model_type", "gpt2"}, {"vocab_size", 19},   {"n_positions", 8},        {"n_ctx", 8}, {"n_embd", 16}, {"n_layer", 2},
          {"n_head", 4},          {"n_inner", nullptr}, {"torch_dtype", "float32"}};
}
inline nlohmann::json llama_json() {
  return {{"model_type", "llama"},    {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 19},         {"hidden_size", 16},
          {"intermediate_size", 12},  {"num_hidden_layers", 4},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"hidden_act", "silu"},     {"rms_norm_eps", 1e-5}};
}

inline std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace weft_test
