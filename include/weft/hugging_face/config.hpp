// SPDX-License-Identifier: Apache-2.0
#pragma once
// The config.json of a folder of `transformers`, as the config of weft's model and back. Both spellings are read, that of version
// 4 (rope_theta, rope_scaling, torch_dtype) and that of 5 (rope_parameters, dtype); the latter is written, and the former where
// it is another. What weft's models do not compute is refused by its name.
//
//   auto config = hugging_face::read_config<models::LlamaConfig>("qwen3");   // then models::Llama, and hugging_face::load
//
// Dropout is of training and not taken over: weft has one number for it, `transformers` up to three (weft's is written in each
// place that weft has). The auxiliary loss of a mixture is one over all layers there and one for each layer here: its coefficient
// is multiplied by top_k / layers, and by the reverse when it is written.

#include <string>

#include <nlohmann/json.hpp>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/folder.hpp>
#include <weft/hugging_face/architecture.hpp>
#include <weft/hugging_face/fields.hpp>
#include <weft/hugging_face/read_fields.hpp>
#include <weft/hugging_face/write_fields.hpp>

namespace weft::hugging_face {

using checkpoint::Error;
using checkpoint::FileSystem;

namespace detail {
inline constexpr const char* config_name = "config.json";
}  // namespace detail

/// Which of weft's models a folder is of: "gpt2" (models::Gpt), "llama" (models::Llama: llama, qwen2 and qwen3) or "mixtral"
/// (models::Mixtral: mixtral and qwen3_moe). Throws Error for every other.
inline std::string model_type(const std::string& folder, FileSystem& system = FileSystem::system()) {
  detail::Fields fields = detail::Fields::open(checkpoint::detail::in_folder(folder, detail::config_name), system);
  return std::string(detail::known_architecture(fields).model);
}

/// The config of a folder: GptConfig, LlamaConfig or MixtralConfig, whichever model_type(folder) names. `sequence` is the longest
/// that the model was made for; rotary positions take any other. Throws Error for another model_type and for what weft's model
/// does not compute, by its name.
template <class Config>
Config read_config(const std::string& folder, FileSystem& system = FileSystem::system()) {
  static_assert(detail::is_known<Config>, "weft: read_config<Config>: Config is models::GptConfig, LlamaConfig or MixtralConfig");
  Config config;
  if constexpr (detail::is_known<Config>) {
    detail::Fields fields = detail::Fields::open(checkpoint::detail::in_folder(folder, detail::config_name), system);
    const detail::Architecture& architecture = detail::known_architecture(fields);
    if (architecture.model != detail::model_of<Config>())
      detail::refuse({fields.path()}, {"model_type is ", architecture.type, ", and the config of a ", detail::model_of<Config>(),
                                       " is asked for"});
    detail::take_common(fields, architecture);
    detail::take(fields, architecture, config);
    fields.finish();
  }
  return config;
}

/// The text of config.json. `type`: of the parameters. Throws UsageError for a model that `transformers` does not have.
template <class Config>
std::string config_text(const Config& config, checkpoint::StoredType type) {
  using checkpoint::StoredType;
  nlohmann::ordered_json json = detail::fields_of(config);
  const detail::Architecture& architecture = detail::architecture_of(config);
  json["architectures"] = {architecture.class_name};
  json["model_type"] = architecture.type;
  const char* name = type == StoredType::bf16  ? "bfloat16"
                     : type == StoredType::f16 ? "float16"
                     : type == StoredType::f64 ? "float64"
                                               : "float32";
  json["dtype"] = json["torch_dtype"] = name;
  return json.dump(2) + "\n";
}

}  // namespace weft::hugging_face
