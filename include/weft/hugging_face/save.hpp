// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder that `transformers` loads, of a model in any layout: config.json and model.safetensors. All ranks write their parts as
// a checkpoint beside it, which rank 0 makes one file, so no rank needs memory for more than one whole tensor.
//
//   hugging_face::save("mine", model);   // AutoModelForCausalLM.from_pretrained("mine")

#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <type_traits>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/checkpoint/whole.hpp>
#include <weft/comm/in_function.hpp>
#include <weft/core/scalar.hpp>
#include <weft/hugging_face/config.hpp>
#include <weft/hugging_face/merge.hpp>
#include <weft/hugging_face/weights.hpp>
#include <weft/layer/lora_options.hpp>

namespace weft::hugging_face {

struct SaveOptions {
  FileSystem* system = &FileSystem::system();
};

namespace detail {

inline void write_text(FileSystem& system, const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp-" + checkpoint::detail::nonce();
  try {
    checkpoint::detail::File file = checkpoint::detail::File::make(system, unfinished);
    file.write(text.data(), text.size());
    file.finish();
    if (system.rename(unfinished.c_str(), path.c_str()) != 0)
      checkpoint::detail::refuse_call({path}, "cannot be named so", errno);
  } catch (...) {
    system.remove_file(unfinished.c_str());
    throw;
  }
}

/// Writes the parameters of a state, under the names that `name` gives them, and the text of their config into a folder, which is
/// made if it is not there. Collective.
inline void save(const std::string& folder, const Communicator& ranks, const checkpoint::detail::State& state,
                 const std::string& text, const char* config_file, const char* weights_file, FileSystem& system,
                 const std::function<std::string(const std::string&)>& name = {}) {
  checkpoint::detail::require_same_call(ranks, "save", folder, 0);
  const std::string parts = checkpoint::detail::in_folder(folder, ".parts");
  const auto remove = [&] {
    std::error_code unused;
    if (ranks.rank() == 0) std::filesystem::remove_all(parts, unused);
  };
  checkpoint::detail::together(ranks, [&] {
    if (ranks.rank() != 0) return;
    checkpoint::detail::make_folders(system, folder);
    remove();  // of a save that was ended
  });
  try {
    checkpoint::detail::save(parts, ranks, state, 0, {.system = &system});
    checkpoint::detail::together(ranks, [&] {
      if (ranks.rank() != 0) return;
      write_text(system, checkpoint::detail::in_folder(folder, config_file), text);
      checkpoint::merge(checkpoint::find(parts, system), checkpoint::detail::in_folder(folder, weights_file),
                        {.name = name, .system = &system});
      checkpoint::detail::sync_folder(system, folder);
    });
  } catch (...) {
    remove();
    throw;
  }
  remove();
}

}  // namespace detail

/// Writes config.json and model.safetensors of a Gpt, Llama or Mixtral into a folder, which is made if it is not there; files of
/// these names are replaced, model.safetensors last. Parameters are of the model's type, with Hugging Face's names; adapters
/// (Lora) are merged into the weights beside them, in the files and not in the model. Collective over the model's ranks, which
/// see one file system; rank 0 writes the second copy. Throws UsageError for a model that `transformers` does not have, Error on
/// every rank if a file cannot be written.
template <class Model>
void save(const std::string& folder, Model& model, const SaveOptions& options = {}) {
  if constexpr (detail::require_known<Model>()) {
    const comm::InFunction mark(model.communicator(), comm::ProgramFunction::hugging_face_save);
    if (checkpoint::detail::has_no_values(model)) return;  // a rehearsal
    using Scalar = typename std::remove_reference_t<Model>::model_type::scalar;
    const std::string text =
        config_text(model.stages().config(), checkpoint::stored_type(data_type_of<Scalar>));  // throws on all ranks
    const MergedAdapters merged = merge_adapters(model);
    checkpoint::detail::State state = checkpoint::detail::state_of(model);
    std::erase_if(state.items, [](const auto& item) { return weft::detail::is_adapter(item.name); });
    detail::save(
        folder, model.communicator(), state, text, detail::config_name, detail::weights_name, *options.system,
        [&](const std::string& name) { return detail::stored_name(name, detail::architecture_of(model.stages().config())); });
  }
}

}  // namespace weft::hugging_face
