// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder that `transformers` loads, of a model in any layout: config.json and model.safetensors. All ranks write their parts as
// a checkpoint beside it, which rank 0 makes one file, so no rank needs memory for more than one whole tensor.
//
//   hugging_face::save("mine", model);   // AutoModelForCausalLM.from_pretrained("mine")

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <type_traits>

#include <weft/checkpoint/data_types.hpp>
#include <weft/checkpoint/save.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/checkpoint/whole.hpp>
#include <weft/core/scalar.hpp>
#include <weft/hugging_face/config.hpp>
#include <weft/hugging_face/weights.hpp>

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

}  // namespace detail

/// Writes config.json and model.safetensors of a Gpt, Llama or Mixtral into a folder, which is made if it is not there; files of
/// these names are replaced, model.safetensors last. Parameters are of the model's type, with Hugging Face's names. Collective
/// over the model's ranks, which see one file system; rank 0 writes the second copy. Throws UsageError for a model that
/// `transformers` does not have, Error on every rank if a file cannot be written.
template <class Model>
void save(const std::string& folder, Model& model, const SaveOptions& options = {}) {
  if constexpr (detail::require_known<Model>()) {
    const Communicator& ranks = model.communicator();
    const auto& config = model.stages().config();
    using Scalar = typename std::remove_reference_t<Model>::model_type::scalar;
    const std::string text = config_text(config, checkpoint::stored_type(data_type_of<Scalar>));  // throws on all ranks
    checkpoint::detail::require_same_call(ranks, "save", folder, 0);
    const std::string parts = checkpoint::detail::in_folder(folder, ".parts");
    const auto remove = [&] {
      std::error_code unused;
      if (ranks.rank() == 0) std::filesystem::remove_all(parts, unused);
    };
    checkpoint::detail::together(ranks, [&] {
      if (ranks.rank() != 0) return;
      if (!checkpoint::detail::is_folder(folder) && options.system->make_folder(folder.c_str(), 0700) != 0)
        checkpoint::detail::refuse_call({folder}, "cannot be made", errno);
      remove();  // of a save that was ended
    });
    try {
      checkpoint::save(parts, model, 0, {.system = options.system});
      checkpoint::detail::together(ranks, [&] {
        if (ranks.rank() != 0) return;
        detail::write_text(*options.system, checkpoint::detail::in_folder(folder, detail::config_name), text);
        checkpoint::merge(
            checkpoint::find(parts, *options.system), checkpoint::detail::in_folder(folder, detail::weights_name),
            {.name = [&](const std::string& name) { return detail::stored_name(name, detail::architecture_of(config)); },
             .system = options.system});
        checkpoint::detail::sync_folder(*options.system, folder);
      });
    } catch (...) {
      remove();
      throw;
    }
    remove();
  }
}

}  // namespace weft::hugging_face
