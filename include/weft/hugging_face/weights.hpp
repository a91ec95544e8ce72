// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a `transformers` folder by the names of weft's models: from model.safetensors, or from the shards listed in
// model.safetensors.index.json. One expert's matrix may be a part of a tensor of all experts. Only headers are read here.
//
//   const Weights weights = Weights::open("llama", "llama", true);
//   weights.find("model.norm.weight")->shape

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/checkpoint/folder.hpp>
#include <weft/checkpoint/safetensors.hpp>
#include <weft/hugging_face/fields.hpp>

namespace weft::hugging_face::detail {

using checkpoint::Safetensors;
using checkpoint::StoredTensor;
using checkpoint::StoredType;

inline constexpr const char* weights_name = "model.safetensors";
inline constexpr const char* shards_name = "model.safetensors.index.json";

/// A tensor of weft's model in a file: a whole stored tensor, or its elements from `first` on.
struct Weight {
  std::size_t file = 0;
  const StoredTensor* stored = nullptr;
  std::vector<std::size_t> shape;
  std::uint64_t first = 0;
};

/// The text after "`before`N", where N is a number: for "h.3.attn.bias" and "h." it is ".attn.bias".
inline std::optional<std::string_view> behind_number(std::string_view text, std::string_view before) {
  if (!text.starts_with(before)) return std::nullopt;
  text.remove_prefix(before.size());
  const std::size_t end = text.find_first_not_of("0123456789");
  if (end == 0 || end == text.npos) return std::nullopt;
  return text.substr(end);
}

class Weights {
 public:
  /// `type`: weft's model, gpt2, llama or mixtral. `tied`: the last projection is the embedding's table. Throws Error for
  /// inconsistent files.
  static Weights open(const std::string& folder, std::string_view type, bool tied, FileSystem& system = FileSystem::system()) {
    Weights weights;
    const std::string whole = checkpoint::detail::in_folder(folder, weights_name),
                      shards = checkpoint::detail::in_folder(folder, shards_name);
    std::map<std::string, std::string> file_of;  // from the index of shards
    const Safetensors::Options options{.follow_links = true, .system = &system};
    if (checkpoint::detail::is_there(whole)) {
      weights.paths_ = {whole};
      weights.files_.push_back(Safetensors::open(whole, options));
    } else if (checkpoint::detail::is_there(shards)) {
      file_of = weights.open_shards(folder, shards, options);
    } else {
      refuse({folder},
             {"has neither ", weights_name, " nor ", shards_name, ": `transformers` writes one of them with save_pretrained"});
    }
    const bool sharded = !file_of.empty();
    std::map<std::string, std::pair<std::size_t, const StoredTensor*>> stored;
    for (std::size_t file = 0; file < weights.files_.size(); ++file)
      for (const StoredTensor& tensor : weights.files_[file].tensors()) {
        const auto at = file_of.find(tensor.name);
        if (sharded && (at == file_of.end() || checkpoint::detail::in_folder(folder, at->second) != weights.paths_[file]))
          refuse({weights.paths_[file], tensor.name}, {"is in this file, and not by ", shards_name});
        if (sharded) file_of.erase(at);
        stored[tensor.name] = {file, &tensor};
      }
    if (!file_of.empty())
      refuse({shards, file_of.begin()->first}, {"is not in ", shown(file_of.begin()->second), ", which it names"});
    const std::string_view prefix = type == "gpt2" ? "transformer." : "model.";
    bool prefixed = false;
    for (const auto& [name, place] : stored) prefixed = prefixed || name.starts_with(prefix);
    for (const auto& [name, place] : stored) {
      const bool head = name == "lm_head.weight";
      weights.add(prefixed || head ? name : std::string(prefix) + name, place.first, *place.second, type, tied && head);
    }
    return weights;
  }

  /// Opens one file. `rename` maps a tensor's name in the file to weft's; an empty result skips the tensor.
  static Weights open_file(const std::string& path, const std::function<std::string(const std::string&)>& rename,
                           FileSystem& system = FileSystem::system()) {
    Weights weights;
    weights.paths_ = {path};
    weights.files_.push_back(Safetensors::open(path, {.follow_links = true, .system = &system}));
    for (const StoredTensor& tensor : weights.files_.front().tensors())
      if (const std::string name = rename(tensor.name); !name.empty()) weights.put(name, {0, &tensor, tensor.shape, 0});
    return weights;
  }

  const std::map<std::string, Weight>& all() const { return all_; }
  const Weight* find(const std::string& name) const {
    const auto at = all_.find(name);
    return at == all_.end() ? nullptr : &at->second;
  }
  const Safetensors& file(const Weight& weight) const { return files_[weight.file]; }
  const std::string& path(const Weight& weight) const { return paths_[weight.file]; }
  /// The stored last projection of a model that ties it to the embedding's table; both must hold the same numbers.
  const std::optional<Weight>& tied_head() const { return tied_head_; }

 private:
  std::map<std::string, std::string> open_shards(const std::string& folder, const std::string& path,
                                                 const Safetensors::Options& options) {
    std::map<std::string, std::string> file_of;
    const nlohmann::json index = read_json(path, *options.system);
    if (!index.contains("weight_map") || !index.at("weight_map").is_object()) refuse({path}, {"lacks weight_map"});
    std::map<std::string, std::size_t> opened;
    for (const auto& [name, file] : index.at("weight_map").items()) {
      if (!file.is_string() || !checkpoint::detail::plain_name(file.get<std::string>()))
        refuse({path, name}, {"its file is ", shown(file.dump()), ": only plain names are allowed"});
      file_of[name] = file.get<std::string>();
      opened.emplace(file_of[name], 0);
    }
    if (file_of.empty()) refuse({path}, {"names no tensor"});
    for (const auto& [file, unused] : opened) {
      paths_.push_back(checkpoint::detail::in_folder(folder, file));
      files_.push_back(Safetensors::open(paths_.back(), options));
    }
    return file_of;
  }

  void add(const std::string& name, std::size_t file, const StoredTensor& stored, std::string_view type, bool tied_head) {
    const Weight whole{file, &stored, stored.shape, 0};
    if (tied_head) {
      tied_head_ = whole;
      return;
    }
    // Older versions stored buffers that a model computes itself.
    if (type == "gpt2") {
      const auto rest = behind_number(name, "transformer.h.");
      if (rest == ".attn.bias" || rest == ".attn.masked_bias") return;
    } else if (behind_number(name, "model.layers.") == ".self_attn.rotary_emb.inv_freq") {
      return;
    }
    if (type == "mixtral" && add_experts(name, whole)) return;
    put(name, whole);
  }
  /// The spellings of a mixture: mlp. for block_sparse_moe.; gate_proj, up_proj and down_proj for w1, w3 and w2; and all experts'
  /// matrices in one tensor.
  bool add_experts(const std::string& name, const Weight& whole) {
    const auto rest = behind_number(name, "model.layers.");
    if (!rest) return false;
    std::string_view inner = *rest;
    for (const std::string_view mixture : {".mlp.", ".block_sparse_moe."}) {
      if (!inner.starts_with(mixture)) continue;
      inner.remove_prefix(mixture.size());
      const std::string place = name.substr(0, name.size() - rest->size()) + ".block_sparse_moe.";
      const bool in = inner == "experts.gate_up_proj", out = inner == "experts.down_proj";
      if (!in && !out) {
        std::string own = place + std::string(inner);
        if (const auto matrix = behind_number(inner, "experts."))
          for (const auto& [theirs, weft] : {std::pair{".gate_proj.weight", ".w1.weight"},
                                             {".up_proj.weight", ".w3.weight"},
                                             {".down_proj.weight", ".w2.weight"}})
            if (*matrix == theirs) own.replace(own.size() - matrix->size(), matrix->size(), weft);
        put(own, whole);
        return true;
      }
      const std::vector<std::size_t>& shape = whole.shape;  // [experts, 2 intermediate, width] or [experts, width, intermediate]
      if (shape.size() != 3 || shape[0] > most_parts || whole.stored->bytes() == 0 || (in && shape[1] % 2 != 0))
        refuse({paths_[whole.file], name}, {"is not one matrix for each expert"});
      const std::size_t rows = in ? shape[1] / 2 : shape[1], elements = rows * shape[2];
      for (std::size_t expert = 0; expert < shape[0]; ++expert) {
        const std::string of = weft::detail::joined({place, "experts.", expert, "."});
        const std::uint64_t first = expert * shape[1] * shape[2];
        put(of + (in ? "w1.weight" : "w2.weight"), {whole.file, whole.stored, {rows, shape[2]}, first});
        if (in) put(of + "w3.weight", {whole.file, whole.stored, {rows, shape[2]}, first + elements});
      }
      return true;
    }
    return false;
  }
  void put(const std::string& name, Weight weight) {
    const std::string path = paths_[weight.file];
    if (!all_.emplace(name, std::move(weight)).second) refuse({path, name}, {"is there twice, by two names"});
  }

  std::vector<std::string> paths_;
  std::vector<Safetensors> files_;
  std::map<std::string, Weight> all_;
  std::optional<Weight> tied_head_;
};

}  // namespace weft::hugging_face::detail
