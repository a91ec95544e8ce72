// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model of any layout saved as a folder for `transformers`: config.json and model.safetensors. All ranks write their parts as a
// temporary checkpoint, which rank 0 merges into one file. So a rank never holds more than one whole tensor in memory.
//
//   hugging_face::save("mine", model);   // AutoModelForCausalLM.from_pretrained("mine")

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/checkpoint/whole.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/output_file.hpp>
#include <weft/core/scalar.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/hugging_face/config.hpp>
#include <weft/hugging_face/merge.hpp>
#include <weft/hugging_face/weights.hpp>

namespace weft::hugging_face {

/// Options of save.
struct SaveOptions {
  FileSystem* system = &FileSystem::system();
};

namespace detail {

/// model-00001-of-00002.safetensors
inline bool is_shard(std::string_view name) {
  constexpr std::string_view like = "model-#####-of-#####.safetensors";
  return name.size() == like.size() && std::equal(name.begin(), name.end(), like.begin(),
                                                  [](char is, char as) { return as == '#' ? is >= '0' && is <= '9' : is == as; });
}

inline void write_text(FileSystem& system, const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp-" + checkpoint::detail::nonce();
  try {
    checkpoint::detail::File file = checkpoint::detail::File::make(system, unfinished, path);
    file.write(text.data(), text.size());
    file.finish();
    if (checkpoint::detail::rename(system, unfinished, path) != 0)
      checkpoint::detail::refuse_call({path}, "cannot be named so", errno);
  } catch (...) {
    checkpoint::detail::remove_file(system, unfinished);
    throw;
  }
}

/// Removes the index and the shards of an earlier model, which readers would use instead of model.safetensors. Removes the index
/// first, and only once the new file is on the disk, so a reader finds a complete model at every moment.
inline void remove_shards(FileSystem& system, const std::string& folder) {
  const auto remove = [&](const std::string& name) {
    const std::string path = checkpoint::detail::in_folder(folder, name);
    if (checkpoint::detail::remove_file(system, path) != 0 && errno != ENOENT)
      checkpoint::detail::refuse_call({path}, "cannot be removed, and is of an earlier model", errno);
  };
  if (checkpoint::detail::is_there(checkpoint::detail::in_folder(folder, shards_name))) {
    remove(shards_name);
    checkpoint::detail::sync_folder(system, folder);
  }
  for (const std::string& name : checkpoint::detail::names_in(folder))
    if (is_shard(name)) remove(name);
}

/// Writes text files (by name), then the parameters of a state under the names that `name` returns, into a folder, which is
/// created if necessary. Collective.
inline void save(const std::string& folder, const Communicator& ranks, const checkpoint::detail::State& state,
                 const std::map<std::string, std::string>& texts, const char* weights_file, FileSystem& system,
                 const std::function<std::string(const std::string&)>& name = {}) {
  checkpoint::detail::require_same_call(ranks, "save", folder, 0);
  const std::string parts = checkpoint::detail::in_folder(folder, ".parts");
  std::shared_ptr<checkpoint::detail::FolderLock> lock;  // lock of the parts: two exports into one folder would remove each
                                                         // other's
  const auto remove = [&] {
    if (!lock) return;
    for (const checkpoint::Entry& entry : checkpoint::list(parts)) checkpoint::detail::remove_leftover(system, entry.path);
    checkpoint::detail::remove_leftovers(system, parts);
    checkpoint::detail::remove_file(system, checkpoint::detail::in_folder(parts, "latest"));
  };
  checkpoint::detail::together(ranks, [&] {
    if (ranks.rank() != 0) return;
    checkpoint::detail::make_folders(system, folder);
    for (const auto& [file, text] : texts)
      weft::detail::require_output("hugging_face::save", checkpoint::detail::in_folder(folder, file));
    weft::detail::require_output("hugging_face::save", checkpoint::detail::in_folder(folder, weights_file));
    const checkpoint::detail::Found found = checkpoint::detail::found_at(parts);
    if (found != checkpoint::detail::Found::nothing && found != checkpoint::detail::Found::folder)
      checkpoint::detail::refuse({parts}, {"is no folder, and a save needs the name: move it away"});
    lock = checkpoint::detail::FolderLock::take(system, parts);
    remove();  // of an interrupted save
  });
  try {
    checkpoint::detail::save(parts, ranks, state, 0, {.system = &system});
    checkpoint::detail::together(ranks, [&] {
      if (ranks.rank() != 0) return;
      for (const auto& [file, text] : texts) write_text(system, checkpoint::detail::in_folder(folder, file), text);
      checkpoint::merge(checkpoint::find(parts, system), checkpoint::detail::in_folder(folder, weights_file),
                        {.name = name, .system = &system});
      checkpoint::detail::sync_folder(system, folder);
      if (std::string_view(weights_file) == weights_name) remove_shards(system, folder);
    });
  } catch (...) {
    remove();
    lock.reset();
    if (ranks.rank() == 0) checkpoint::detail::remove_folder(system, parts);
    throw;
  }
  remove();
  lock.reset();
  if (ranks.rank() == 0) checkpoint::detail::remove_folder(system, parts);  // fails if the folder has foreign files
}

}  // namespace detail

/// Writes config.json and model.safetensors of a Gpt, Llama or Mixtral into a folder, which is created if necessary. Files of
/// these names are replaced, model.safetensors last; shards of an earlier model are removed after that. If the model was loaded
/// from a folder, or its config read from one, that config.json's unused fields (such as token ids) are kept, and its
/// generation_config.json is copied. Parameters have the model's type and Hugging Face's names. Adapters (Lora) are merged into
/// their base weights in the files, but not in the model. Collective over the model's ranks, which must share a file system; rank
/// 0 writes the merged copy. Throws UsageError for a model that `transformers` does not have, Error on every rank if a file
/// cannot be written.
template <class Model>
void save(const std::string& folder, Model& model, const SaveOptions& options = {}) {
  if constexpr (detail::require_known<Model>()) {
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::hugging_face_save);
    if (checkpoint::detail::leaves_files_alone(model)) return;  // a rehearsal or proof
    using Scalar = typename std::remove_reference_t<Model>::model_type::scalar;
    const auto& config = model.stages().config();
    std::map<std::string, std::string> texts{
        {detail::config_name, config_text(config, checkpoint::stored_type(data_type_of<Scalar>))}};  // throws on all ranks
    if (!config.files.generation.empty()) texts[detail::generation_name] = config.files.generation;
    const MergedAdapters merged = merge_adapters(model);
    checkpoint::detail::State state = checkpoint::detail::state_of(model);
    std::erase_if(state.items, [](const auto& item) { return weft::detail::is_adapter(item.name); });
    detail::save(folder, model.communicator(), state, texts, detail::weights_name, *options.system,
                 [&](const std::string& name) { return detail::stored_name(name, detail::architecture_of(config)); });
  }
}

}  // namespace weft::hugging_face
