// SPDX-License-Identifier: Apache-2.0
#pragma once
// Low-rank adapters without their base model, in PEFT's files: adapter_config.json and adapter_model.safetensors, in any layout.
//
//   hugging_face::save_adapters("mine", model, {.base = "meta-llama/Llama-2-7b-hf"});
//   // in Python: PeftModel.from_pretrained(base, "mine")

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include <weft/comm/in_function.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/hugging_face/config.hpp>
#include <weft/hugging_face/load.hpp>
#include <weft/hugging_face/save.hpp>
#include <weft/nn/lora.hpp>

namespace weft::hugging_face {

/// Options of save_adapters.
struct SaveAdaptersOptions {
  std::string base = {};  ///< the base model's name or folder, for PEFT
  FileSystem* system = &FileSystem::system();
};

namespace detail {

inline constexpr const char* adapter_config_name = "adapter_config.json";
inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";
inline constexpr std::string_view peft_prefix = "base_model.model.";

/// True, or a compile-time error.
template <class Model>
constexpr bool require_adapters() {
  if constexpr (require_known<Model>()) {
    constexpr bool has = !std::is_same_v<typename Model::model_type::adapters, NoAdapters>;
    static_assert(has,
                  "weft: this model's type has no adapters to load or save: give it the policy Lora, such as "
                  "models::BasicLlama<float, Lora>, and ModelOptions::lora a rank");
    return has;
  } else {
    return false;
  }
}
inline void require_rank(const LoraOptions& lora, const char* what) {
  if (lora.rank == 0)
    throw UsageError(std::string("hugging_face::") + what + ": the model has no adapters: ModelOptions::lora.rank is 0");
}

/// PEFT's names of the layers: the last part of a name if all matrices of that name have an adapter, otherwise whole names.
inline std::vector<std::string> target_modules(const std::vector<std::string>& parameters) {
  const auto last = [](const std::string& layer) { return layer.substr(layer.rfind('.') + 1); };
  const std::set<std::string> all(parameters.begin(), parameters.end());
  std::map<std::string, bool> complete;
  std::set<std::string> targets;
  constexpr std::string_view weight = ".weight";
  for (const std::string& name : parameters) {
    if (!name.ends_with(weight) || weft::detail::is_adapter(name)) continue;
    const std::string layer = name.substr(0, name.size() - weight.size());
    const bool adapted = all.contains(layer + std::string(weft::detail::lora_down));
    const auto [at, added] = complete.try_emplace(last(layer), adapted);
    at->second = at->second && adapted;
  }
  for (const std::string& name : parameters)
    if (name.ends_with(weft::detail::lora_down)) {
      const std::string layer = name.substr(0, name.size() - weft::detail::lora_down.size());
      targets.insert(complete.at(last(layer)) ? last(layer) : layer);
    }
  return {targets.begin(), targets.end()};
}

inline std::string adapter_config_text(const LoraOptions& lora, const std::vector<std::string>& targets, bool stored_in_out,
                                       const std::string& base) {
  const nlohmann::ordered_json json{{"base_model_name_or_path", base},
                                    {"bias", "none"},
                                    {"fan_in_fan_out", stored_in_out},
                                    {"inference_mode", true},
                                    {"init_lora_weights", true},
                                    {"lora_alpha", lora.alpha},
                                    {"lora_dropout", lora.dropout},
                                    {"peft_type", "LORA"},
                                    {"r", lora.rank},
                                    {"target_modules", targets},
                                    {"task_type", "CAUSAL_LM"},
                                    {"use_dora", false},
                                    {"use_rslora", false}};
  return json.dump(2) + "\n";
}

/// Throws Error if the folder has weights of adapters of another rank. Checked first, since a model allocates its adapters before
/// they are read.
inline void require_rank_of_weights(const std::string& folder, std::size_t rank, FileSystem& system) {
  const std::string path = checkpoint::detail::in_folder(folder, adapter_weights_name);
  if (!checkpoint::detail::is_there(path)) return;
  const auto file = checkpoint::Safetensors::open(path, {.follow_links = true, .system = &system});
  std::size_t matrices = 0;
  for (const checkpoint::StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(weft::detail::lora_down)) continue;
    ++matrices;
    if (tensor.shape.size() != 2 || tensor.shape[0] != rank)
      refuse({path, tensor.name},
             {"is ", checkpoint::detail::shape_text(tensor.shape), ", and r is ", rank, " in ", adapter_config_name});
  }
  if (matrices == 0) refuse({path}, {"has no matrix of an adapter, *", weft::detail::lora_down});
}

}  // namespace detail

/// The options of the adapters in a PEFT folder, for ModelOptions::lora. Throws Error for options that weft's adapters do not
/// support, and if the weights in the folder have another rank.
inline LoraOptions read_adapter_config(const std::string& folder, FileSystem& system = FileSystem::system()) {
  detail::Fields fields = detail::Fields::open(checkpoint::detail::in_folder(folder, detail::adapter_config_name), system);
  LoraOptions lora;
  fields.require("peft_type", "LORA", "its adapters are low-rank products");
  lora.rank = fields.count("r");
  lora.alpha = fields.number("lora_alpha");
  lora.dropout = fields.number("lora_dropout", 0);
  if (!(lora.dropout >= 0 && lora.dropout < 1)) fields.unexpected("lora_dropout", "a number of [0, 1)");
  lora.match.clear();
  for (const std::string& name : fields.texts("target_modules")) {  // PEFT matches a whole name, or its end after a dot
    if (name == "all-linear") lora.match.push_back("*");
    else
      lora.match.insert(lora.match.end(), {name.starts_with("model.") || name.starts_with("transformer.") ? name : "*." + name});
  }
  if (lora.match.empty()) fields.unexpected("target_modules", "a list of layers");
  for (const char* name : {"use_rslora", "use_dora", "use_qalora", "lora_bias", "alora_invocation_tokens", "use_bdlora"})
    if (fields.has(name)) fields.require(name, false, "an adapter is alpha / r times a product");
  fields.require("bias", "none", "biases of the base are not trained");
  for (const char* name : {"rank_pattern", "alpha_pattern", "loftq_config"})
    if (fields.has(name)) fields.require(name, nlohmann::json::object(), "all adapters have one rank and one alpha");
  for (const char* name : {"target_parameters", "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern",
                           "layer_replication", "trainable_token_indices"})
    if (fields.has(name)) fields.require(name, nlohmann::json::array(), "adapters are of the layers that target_modules names");
  fields.require("megatron_core", "megatron.core", "it is not read");
  fields.ignore({"base_model_name_or_path", "fan_in_fan_out", "inference_mode", "init_lora_weights", "task_type", "auto_mapping",
                 "revision", "peft_version", "qalora_group_size", "ensure_weight_tying"});
  fields.require_all_read();
  detail::require_rank_of_weights(folder, lora.rank, system);
  return lora;
}

/// Writes adapter_config.json and adapter_model.safetensors for PEFT into a folder, which is created if necessary. Collective
/// over the model's ranks, which must share a file system. Throws UsageError for a model without adapters, Error on every rank if
/// a file cannot be written.
template <class Model>
void save_adapters(const std::string& folder, Model& model, const SaveAdaptersOptions& options = {}) {
  if constexpr (detail::require_adapters<Model>()) {
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::save_adapters);
    if (checkpoint::detail::leaves_files_alone(model)) return;  // a rehearsal or proof
    const LoraOptions& lora = model.options().lora;
    detail::require_rank(lora, "save_adapters");
    checkpoint::detail::State state = checkpoint::detail::state_of(model);
    std::erase_if(state.items, [](const auto& item) { return !weft::detail::is_adapter(item.name); });
    for (auto& item : state.items) item.name = std::string(detail::peft_prefix) + item.name;
    state.loss_scale.reset();
    const std::string text = detail::adapter_config_text(lora, detail::target_modules(model.parameter_names()),
                                                         std::is_same_v<typename Model::Config, models::GptConfig>, options.base);
    detail::save(folder, model.communicator(), state, {{detail::adapter_config_name, text}}, detail::adapter_weights_name,
                 *options.system);
  }
}

namespace detail {

inline void read_adapters(const std::string& folder, const Communicator& ranks, checkpoint::detail::State state,
                          const LoraOptions& lora, FileSystem& system) {
  require_rank(lora, "load_adapters");
  checkpoint::detail::require_same_call(ranks, "load", folder, 0);
  std::erase_if(state.items, [](const Item& item) { return item.kind != "parameter" || !weft::detail::is_adapter(item.name); });
  std::optional<Weights> weights;
  checkpoint::detail::together(ranks, [&] {
    const LoraOptions theirs = read_adapter_config(folder, system);
    const std::string path = checkpoint::detail::in_folder(folder, adapter_config_name);
    if (theirs.rank != lora.rank) refuse({path}, {"says r ", theirs.rank, ", and this model's adapters are of rank ", lora.rank});
    if (theirs.alpha != lora.alpha)
      refuse({path}, {"says lora_alpha ", checkpoint::detail::number_text(theirs.alpha), ", and this model has ",
                      checkpoint::detail::number_text(lora.alpha), ": make it of hugging_face::read_adapter_config(folder)"});
    weights = Weights::open_file(
        checkpoint::detail::in_folder(folder, adapter_weights_name),
        [](const std::string& name) { return name.starts_with(peft_prefix) ? name.substr(peft_prefix.size()) : name; }, system);
  });
  load_items(folder, ranks, *weights, state);
}

template <class Model, class... Optimizer>
void load_adapters(const std::string& folder, const LoadOptions& options, Model& model, Optimizer&... optimizer) {
  if constexpr (require_adapters<Model>()) {
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::load_adapters);
    if (checkpoint::detail::leaves_files_alone(model)) return;  // a rehearsal or proof
    read_adapters(folder, model.communicator(), checkpoint::detail::state_of(model, optimizer...), model.options().lora,
                  *options.system);
    model.discard_gradients();
  }
}

}  // namespace detail

/// Sets the adapters of a model to those in a PEFT folder. The model must have the same rank, alpha and adapted layers
/// (read_adapter_config). Collective; throws and discards gradients as load does.
template <class Model, checkpoint::StoredOptimizer Optimizer>
void load_adapters(const std::string& folder, Model& model, Optimizer& optimizer, const LoadOptions& options = {}) {
  detail::load_adapters(folder, options, model, optimizer);
}
/// load_adapters without an optimizer.
template <class Model>
void load_adapters(const std::string& folder, Model& model, const LoadOptions& options = {}) {
  detail::load_adapters(folder, options, model);
}

}  // namespace weft::hugging_face
