// SPDX-License-Identifier: Apache-2.0
#pragma once
// The attention fields of a config.json: rotary positions and their scaling, heads, and the layers that have a window.
//
//   take_rope(fields, config, 10000);

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/config_numbers.hpp>
#include <weft/hugging_face/fields.hpp>
#include <weft/models/llama.hpp>

namespace weft::hugging_face::detail {

/// YaRN's attention factor: given directly, computed from the two mscales, or 0 if it follows from the scaling factor.
inline double take_attention_factor(Fields& rope, double factor) {
  const double mscale = rope.number("mscale", 0), of_all = rope.number("mscale_all_dim", 0);
  const auto part = [&](double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; };
  const double derived = mscale != 0 && of_all != 0 ? part(mscale) / part(of_all) : 0;
  const double given = rope.number("attention_factor", derived);
  if (given <= 0 && rope.has("attention_factor")) rope.unexpected("attention_factor", "a number above 0");
  return given;
}

/// Reads the scaling in one of its two spellings, rope_parameters and rope_scaling. `sequence`: the model's longest sequence.
/// `original`: the length before scaling if the config has it outside these fields, as Phi-3's does, otherwise 0.
inline RopeScaling take_scaling(Fields& rope, std::size_t sequence, std::size_t original) {
  using Type = RopeScaling::Type;
  RopeScaling scaling;
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (rope.has("type") && rope.text("type") != type) rope.unexpected("type", "the rope_type");
  if (type == "linear") scaling.type = Type::linear;
  else if (type == "llama3") scaling.type = Type::llama3;
  else if (type == "yarn") scaling.type = Type::yarn;
  else if (type == "dynamic") scaling.type = Type::dynamic;
  else if (type == "longrope") scaling.type = Type::longrope;
  else if (type != "default")
    rope.unexpected(rope.has("rope_type") ? "rope_type" : "type", "default, linear, dynamic, yarn, longrope or llama3");
  if (scaling.type == Type::none) return scaling;
  const bool before = scaling.type != Type::linear && scaling.type != Type::dynamic;  // types for which `transformers` reads the
                                                                                      // original length
  if (before) scaling.original_sequence = rope.count("original_max_position_embeddings", sequence);
  else rope.ignore({"original_max_position_embeddings"});
  if (before && original != 0) scaling.original_sequence = original;
  if (scaling.type == Type::dynamic) scaling.original_sequence = sequence;
  const bool of_lengths = scaling.type == Type::yarn || scaling.type == Type::longrope;
  scaling.factor =
      of_lengths ? rope.number("factor", double(sequence) / double(scaling.original_sequence)) : rope.number("factor");
  if (scaling.factor <= 0) rope.unexpected("factor", "a number above 0");
  if (scaling.type == Type::llama3) {
    scaling.low_frequency = rope.number("low_freq_factor");
    scaling.high_frequency = rope.number("high_freq_factor");
    if (scaling.low_frequency <= 0) rope.unexpected("low_freq_factor", "a number above 0");
    if (scaling.high_frequency <= scaling.low_frequency) rope.unexpected("high_freq_factor", "a number above low_freq_factor");
  } else if (scaling.type == Type::yarn) {
    scaling.low_frequency = rope.number("beta_slow", 1);
    scaling.high_frequency = rope.number("beta_fast", 32);
    if (scaling.low_frequency <= 0) rope.unexpected("beta_slow", "a number above 0");
    if (scaling.high_frequency <= scaling.low_frequency) rope.unexpected("beta_fast", "a number above beta_slow");
    scaling.whole_pairs = rope.flag("truncate", true);
    scaling.attention_factor = take_attention_factor(rope, scaling.factor);
  } else if (scaling.type == Type::longrope) {
    if (scaling.original_sequence < 2) rope.unexpected("original_max_position_embeddings", "a whole number of at least 2");
    scaling.attention_factor = rope.number("attention_factor", 0);
    if (scaling.attention_factor <= 0 && rope.has("attention_factor")) rope.unexpected("attention_factor", "a number above 0");
    scaling.short_factors = rope.numbers("short_factor");
    scaling.long_factors = rope.numbers("long_factor");
  }
  return scaling;
}

/// Requires one factor per pair of a head.
template <class Config>
void require_factors(const Fields& fields, const Config& config) {
  const RopeScaling& scaling = config.attention.rope_scaling;
  if (scaling.type != RopeScaling::Type::longrope) return;
  const std::size_t pairs = (config.attention.head_width ? config.attention.head_width : config.width / config.heads) / 2;
  for (const auto& [name, factors] : {std::pair("short_factor", &scaling.short_factors), {"long_factor", &scaling.long_factors}})
    if (factors->size() != pairs || pairs > RopeScaling::most_pairs ||
        std::any_of(factors->begin(), factors->end(), [](double one) { return one <= 0; }))
      refuse({fields.path()}, {name, " of its rotary positions has ", factors->size(), " numbers: ", pairs,
                               " above 0 are meant, one for each pair of a head (", RopeScaling::most_pairs, " at most)"});
}

/// Reads the base and the scaling of rotary positions, in one spelling or in both with equal values.
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
  const std::size_t original =
      fields.has("original_max_position_embeddings") ? fields.count("original_max_position_embeddings") : 0;
  std::optional<RopeScaling> scaling;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const bool there = fields.has(name);
    Fields rope = fields.fields(name);
    const RopeScaling read = take_scaling(rope, config.sequence, original);
    rope.require("partial_rotary_factor", 1.0, "a head is rotated as a whole");
    take_base(rope);
    rope.require_all_read();
    if (!there) continue;
    if (scaling && *scaling != read)
      refuse({fields.path()}, {"rope_parameters and rope_scaling disagree on the rotary positions"});
    scaling = read;
  }
  config.attention.rope_scaling = scaling.value_or(RopeScaling());
  if (config.attention.rope_scaling.type == RopeScaling::Type::dynamic) {  // here max_position_embeddings is the length before
                                                                           // scaling
    const double longest = config.attention.rope_scaling.factor * double(config.sequence);
    config.sequence = std::max(config.sequence, std::size_t(std::min(longest, double(Fields::most))));
  }
  fields.require("partial_rotary_factor", 1.0, "a head is rotated as a whole");
}

/// Reads key-value heads and the width of a head. `kv_heads` and `head_width` are the architecture's defaults.
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

/// Reads the layers that have a window: all, none, those from max_window_layers on (Qwen2 and Qwen3), or by a list or a pattern.
template <class Config>
void take_window(Fields& fields, Config& config, std::string_view type) {
  const bool qwen = type.starts_with("qwen"), by_layer = qwen ? type != "qwen3_moe" : type == "ministral";
  const bool wanted = qwen ? fields.flag("use_sliding_window", false) : type != "mixtral" || fields.has("sliding_window");
  const bool used = wanted && !fields.is_null("sliding_window");
  const std::size_t window = used ? fields.count("sliding_window", 4096) : 0;
  fields.ignore({"sliding_window"});
  std::vector<bool> with(config.layers, used);
  if (qwen) {
    const double first = fields.number("max_window_layers", by_layer ? 28 : 0);
    if (!by_layer && used && first != 0)
      fields.unexpected("max_window_layers", "0, since versions of `transformers` differ in what it says beside a mixture,");
    for (std::size_t layer = 0; layer < config.layers; ++layer) with[layer] = used && double(layer) >= first;
  }
  if (by_layer && fields.has("sliding_window_pattern")) {  // Gemma: one layer in each group has none
    const std::size_t pattern = fields.count("sliding_window_pattern");
    for (std::size_t layer = 0; layer < config.layers; ++layer) with[layer] = used && (layer + 1) % pattern != 0;
  }
  if (by_layer && fields.has("layer_types")) {
    const std::vector<std::string> types = fields.texts("layer_types");
    if (types.size() != config.layers)
      refuse({fields.path()}, {"layer_types has ", types.size(), " layers, and num_hidden_layers is ", config.layers});
    for (std::size_t layer = 0; layer < config.layers; ++layer) {
      with[layer] = types[layer] == "sliding_attention";
      if (!with[layer] && types[layer] != "full_attention")
        refuse({fields.path()},
               {"layer_types has ", shown(types[layer]), ", and weft's models have full_attention and sliding_attention"});
    }
  }
  const std::ptrdiff_t count = std::count(with.begin(), with.end(), true);
  if (count != 0 && !used)
    refuse({fields.path()},
           {"layer_types has sliding_attention, and ", wanted ? "sliding_window is null" : "use_sliding_window is not true"});
  if (count == 0) return;
  config.mask.window = window;
  if (std::size_t(count) != config.layers) config.window_layers = std::move(with);
}

}  // namespace weft::hugging_face::detail
