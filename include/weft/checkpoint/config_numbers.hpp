// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers of a config that change a model's results but no tensor's shape: heads, epsilon, positions, the mask, the choice of
// experts. Files of a model that differs in them fit this model's tensors, and would load without an error.
//
//   for (const auto& [name, value] : detail::config_numbers(config)) ...   // {"heads", "12"}, {"epsilon", "1e-05"}, ...

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/core/standard.hpp>

namespace weft::checkpoint::detail {

/// The shortest text that parses to the same number.
inline std::string number_text(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

using Numbers = std::vector<std::pair<std::string, std::string>>;

/// The numbers of weft's configs, and of any other config that has members with these names.
template <class Config>
Numbers config_numbers(const Config& config) {
  Numbers numbers;
  const auto add = [&]<class T>(std::string_view name, const T& value) {
    if constexpr (std::is_enum_v<T>) numbers.emplace_back(name, std::to_string(static_cast<long long>(value)));
    else if constexpr (std::is_floating_point_v<T>) numbers.emplace_back(name, number_text(double(value)));
    else if constexpr (std::is_integral_v<T>) numbers.emplace_back(name, std::to_string(value));
  };
  if constexpr (requires { config.layers; }) add("layers", config.layers);
  if constexpr (requires { config.width; }) add("width", config.width);
  if constexpr (requires { config.heads; }) add("heads", config.heads);
  if constexpr (requires { config.kv_heads; }) {
    if constexpr (requires { config.kv_heads ? config.kv_heads : config.heads; })
      add("kv_heads", config.kv_heads ? config.kv_heads : config.heads);
    else add("kv_heads", config.kv_heads);
  }
  if constexpr (requires { config.epsilon; }) add("epsilon", config.epsilon);
  if constexpr (requires {
                  config.mask.causal;
                  config.mask.window;
                }) {
    add("mask.causal", int(config.mask.causal));
    add("mask.window", config.mask.window);
  }
  if constexpr (requires { config.window_layers.size(); }) {
    std::string layers;
    for (const bool window : config.window_layers) layers += window ? '1' : '0';
    if (config.mask.window != 0) numbers.emplace_back("window_layers", layers.find('0') == layers.npos ? "all" : layers);
  }
  if constexpr (requires { config.activation; }) add("activation", config.activation);
  if constexpr (requires { config.rope_base; }) add("rope_base", config.rope_base);
  if constexpr (requires { config.tied; }) add("tied", int(config.tied));
  if constexpr (requires { config.attention.rope_scaling.original_sequence; }) {
    const auto& attention = config.attention;
    using Type = std::remove_cvref_t<decltype(attention.rope_scaling.type)>;
    add("attention.head_width", attention.head_width != 0 ? attention.head_width : config.width / config.heads);
    add("attention.bias", attention.bias);
    add("attention.query_key_norm", int(attention.query_key_norm));
    const auto& scaling = attention.rope_scaling;
    add("attention.rope_scaling.type", scaling.type);
    if (scaling.type != Type::none) add("attention.rope_scaling.factor", scaling.factor);
    if (scaling.type == Type::llama3 || scaling.type == Type::yarn) {
      add("attention.rope_scaling.low_frequency", scaling.low_frequency);
      add("attention.rope_scaling.high_frequency", scaling.high_frequency);
    }
    if (scaling.type != Type::none && scaling.type != Type::linear)
      add("attention.rope_scaling.original_sequence", scaling.original_sequence);
    if (scaling.type == Type::yarn || scaling.type == Type::longrope)
      add("attention.rope_scaling.attention_factor", scaling.magnitude());
    if (scaling.type == Type::yarn) add("attention.rope_scaling.whole_pairs", int(scaling.whole_pairs));
    for (std::size_t i = 0; i < scaling.short_factors.size(); ++i)
      add("attention.rope_scaling.short_factors[" + std::to_string(i) + "]", scaling.short_factors[i]);
    for (std::size_t i = 0; i < scaling.long_factors.size(); ++i)
      add("attention.rope_scaling.long_factors[" + std::to_string(i) + "]", scaling.long_factors[i]);
  }
  if constexpr (requires { config.experts; }) add("experts", config.experts);
  if constexpr (requires { config.top_k; }) add("top_k", config.top_k);
  if constexpr (requires { config.scores; }) add("scores", config.scores);
  return numbers;
}

}  // namespace weft::checkpoint::detail
