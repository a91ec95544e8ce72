// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of any model from one safetensors file, for example one that PyTorch's
// safetensors.torch.save_file(model.state_dict(), file) writes. It loads into any layout; a function maps the file's names to the
// model's.
//
//   hugging_face::load_parameters("mlp.safetensors", model, [](const std::string& name) { return "mlp." + name; });

#include <functional>
#include <optional>
#include <string>

#include <weft/hugging_face/load.hpp>

namespace weft::hugging_face {

/// Maps a tensor's name in the file to the model's. An empty result skips the tensor.
using Rename = std::function<std::string(const std::string&)>;

namespace detail {

inline void read_parameters(const std::string& file, const Communicator& ranks, checkpoint::detail::State state,
                            const Rename& rename, const LoadOptions& options) {
  checkpoint::detail::require_same_call(ranks, "load", file, 0);
  std::optional<Weights> weights;
  checkpoint::detail::together(ranks, [&] {
    weights = Weights::open_file(
        file, [&](const std::string& name) { return rename ? rename(name) : name; }, *options.system);
  });
  std::erase_if(state.items, [&](const Item& item) {
    return item.kind != "parameter" || (weft::detail::is_adapter(item.name) && weights->find(item.name) == nullptr);
  });
  load_items(file, ranks, *weights, state);
}

template <class Model, class... Optimizer>
void load_parameters(const std::string& file, const Rename& rename, const LoadOptions& options, Model& model,
                     Optimizer&... optimizer) {
  if (checkpoint::detail::leaves_files_alone(model)) return;  // a rehearsal or proof
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::load_parameters);
  read_parameters(file, model.communicator(), checkpoint::detail::state_of(model, optimizer...), rename, options);
  model.discard_gradients();
}

}  // namespace detail

/// Sets all parameters of a model of any type to the tensors of a safetensors file: row-major, in bfloat16, float16, float or,
/// for a model of doubles, double. Names, shapes and types are compared before anything changes. An error lists the names that
/// are missing from the file and those unknown to the model. Conversions to a wider type are exact. Conversions to 16 bits round
/// to nearest even, and the optimizer's master copies receive the unrounded numbers. The optimizer's other state, buffers, and
/// adapters that are not in the file are unchanged. Collective over the model's ranks, which must share a file system and use the
/// same `rename`. Throws Error on every rank if the file is damaged or of another model, UsageError if ranks disagree; nothing
/// changes in these cases. Accumulated gradients are discarded.
template <class Model, checkpoint::StoredOptimizer Optimizer>
void load_parameters(const std::string& file, Model& model, Optimizer& optimizer, const Rename& rename = {},
                     const LoadOptions& options = {}) {
  detail::load_parameters(file, rename, options, model, optimizer);
}
/// load_parameters without an optimizer. An existing optimizer starts from the new values at its next step, as after
/// set_parameter.
template <class Model>
void load_parameters(const std::string& file, Model& model, const Rename& rename = {}, const LoadOptions& options = {}) {
  detail::load_parameters(file, rename, options, model);
}

}  // namespace weft::hugging_face
