// SPDX-License-Identifier: Apache-2.0
#pragma once
// The config.json of a `transformers` folder, converted to the config of weft's model and back. Both spellings are read: that of
// version 4 (rope_theta, rope_scaling, torch_dtype) and of version 5 (rope_parameters, dtype). Version 5 is written, and version
// 4 too where it differs. Features that weft's models lack are refused by name.
//
//   auto config = hugging_face::read_config<models::LlamaConfig>("qwen3");   // then models::Llama, and hugging_face::load
//
// Dropout belongs to training and is not read: weft has one rate, `transformers` up to three. weft's rate is written wherever
// weft applies it. `transformers` computes one auxiliary loss over all layers of a mixture, weft one per layer: its coefficient
// is multiplied by top_k / layers, and divided by it when it is written.

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/hugging_face/architecture.hpp>
#include <weft/hugging_face/expected_shapes.hpp>
#include <weft/hugging_face/fields.hpp>
#include <weft/hugging_face/read_fields.hpp>
#include <weft/hugging_face/write_fields.hpp>

namespace weft::hugging_face {

using checkpoint::Error;
using checkpoint::FileSystem;

namespace detail {

inline constexpr const char *config_name = "config.json", *generation_name = "generation_config.json";

/// The config of a config.json.
template <class Config>
Config config_of(Fields fields) {
  const Architecture& architecture = known_architecture(fields);
  if (architecture.model != model_of<Config>())
    refuse({fields.path()}, {"model_type is ", architecture.type, ", and the config of a ", model_of<Config>(), " is asked for"});
  Config config;
  config.files.type = architecture.type;
  take_common(fields, architecture);
  take(fields, architecture, config);
  fields.require_all_read();
  return config;
}

/// The config of a folder, without checking its weights.
template <class Config>
Config config_of_folder(const std::string& folder, FileSystem& system) {
  const std::string path = checkpoint::detail::in_folder(folder, config_name),
                    generation = checkpoint::detail::in_folder(folder, generation_name);
  std::string text = read_text(path, system);
  Config config = config_of<Config>(Fields(path, parse_json(path, text)));
  config.files.config = std::move(text);
  if (!checkpoint::detail::is_there(generation)) return config;
  config.files.generation = read_text(generation, system);
  parse_json(generation, config.files.generation);  // a damaged file must not be written again
  return config;
}

/// The fields to write for a config: those of the config.json from which it was read, with the numbers that have changed since.
template <class Config>
nlohmann::ordered_json written_fields(const Config& config) {
  const nlohmann::ordered_json now = fields_of(config);  // throws
  if (config.files.config.empty()) return now;
  const nlohmann::ordered_json read = nlohmann::ordered_json::parse(config.files.config);
  const auto fields_as_read = [&](const nlohmann::ordered_json& json) -> nlohmann::ordered_json {
    try {
      return fields_of(config_of<Config>(Fields(config_name, nlohmann::json(json))));
    } catch (const weft::Error&) {
      return {};  // numbers that are not written back
    }
  };
  if (config.files.type == architecture_of(config).type) {
    const nlohmann::ordered_json before = fields_as_read(read);
    nlohmann::ordered_json all;
    for (const auto& [name, value] : read.items())
      if (now.contains(name) || !before.contains(name)) all[name] = value;
    for (const auto& [name, value] : now.items())
      if (!all.contains(name) || !before.contains(name) || before.at(name) != value) all[name] = value;
    if (fields_as_read(all) == now) return all;
  }
  // The architecture has changed, or a number with two spellings.
  nlohmann::ordered_json all = now;
  for (const char* name : fields_of_every_model)
    if (read.contains(name) && !now.contains(name)) all[name] = read.at(name);
  return all;
}

}  // namespace detail

/// The name of weft's model for a folder: "gpt2" (models::Gpt), "llama" (models::Llama: llama, mistral, ministral, qwen2 and
/// qwen3) or "mixtral" (models::Mixtral: mixtral and qwen3_moe). Throws Error for any other model.
inline std::string model_type(const std::string& folder, FileSystem& system = FileSystem::system()) {
  detail::Fields fields = detail::Fields::open(checkpoint::detail::in_folder(folder, detail::config_name), system);
  return std::string(detail::known_architecture(fields).model);
}

/// The config of a folder: GptConfig, LlamaConfig or MixtralConfig, matching model_type(folder). `sequence` is the model's
/// longest sequence; rotary positions accept any other. The config keeps the texts of config.json and generation_config.json, so
/// that `save` writes the fields that weft does not use (token ids, dropout) unchanged. Throws Error for another model_type, and
/// for features that weft's model lacks, with their names. Also throws Error if the folder has weights of other shapes, before a
/// model of this config would allocate memory for them.
template <class Config>
Config read_config(const std::string& folder, FileSystem& system = FileSystem::system()) {
  static_assert(detail::is_known<Config>, "weft: read_config<Config>: Config is models::GptConfig, LlamaConfig or MixtralConfig");
  if constexpr (detail::is_known<Config>) {
    Config config = detail::config_of_folder<Config>(folder, system);
    detail::require_shapes(folder, config, system);
    return config;
  } else {
    return Config();
  }
}

/// The text of config.json. `type` is the parameters' type. Throws UsageError for a model that `transformers` does not have.
template <class Config>
std::string config_text(const Config& config, checkpoint::StoredType type) {
  using checkpoint::StoredType;
  nlohmann::ordered_json json = detail::written_fields(config);
  const detail::Architecture& architecture = detail::architecture_of(config);
  json["architectures"] = nlohmann::ordered_json::array({architecture.class_name});
  json["model_type"] = architecture.type;
  const char* name = type == StoredType::bf16  ? "bfloat16"
                     : type == StoredType::f16 ? "float16"
                     : type == StoredType::f64 ? "float64"
                                               : "float32";
  json["dtype"] = json["torch_dtype"] = name;
  return json.dump(2) + "\n";
}

}  // namespace weft::hugging_face
