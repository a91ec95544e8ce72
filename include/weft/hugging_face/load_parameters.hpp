// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of any model from one safetensors file, such as PyTorch's safetensors.torch.save_file(model.state_dict(), file)
// writes: in any layout, with a function between the file's names and the model's.
//
//   hugging_face::load_parameters("mlp.safetensors", model, [](const std::string& name) { return "mlp." + name; });

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <weft/hugging_face/load.hpp>

namespace weft::hugging_face {

/// The model's name of a tensor of a file; an empty one leaves the tensor out.
using Rename = std::function<std::string(const std::string&)>;

namespace detail {

inline void load_parameters(const std::string& file, const Communicator& ranks, checkpoint::detail::State state,
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

}  // namespace detail

/// Sets all parameters of a model, of whatever type, to the tensors of a safetensors file, row-major, in bfloat16, float16, float
/// or, for a model of doubles, double. Names, shapes and types are compared before anything changes; an error lists the names
/// that the file lacks and those that the model has not. Conversions to a wider type are exact; into 16 bits numbers are rounded
/// to nearest even, and the optimizer's master copies have them unrounded. An optimizer's other state, buffers, and adapters that
/// the file does not have stay as they are. Collective over the model's ranks, which see one file system and rename alike. Throws
/// Error on every rank for a file that is damaged or of another model, UsageError for ranks that do not agree: nothing has
/// changed then. Gradients so far are discarded.
template <class Model, checkpoint::StoredOptimizer Optimizer>
void load_parameters(const std::string& file, Model& model, Optimizer& optimizer, const Rename& rename = {},
                     const LoadOptions& options = {}) {
  if (checkpoint::detail::has_no_values(model)) return;  // a rehearsal
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::load_parameters);
  detail::load_parameters(file, model.communicator(), checkpoint::detail::state_of(model, optimizer), rename, options);
  model.discard_gradients();
}
/// load_parameters without an optimizer. One that the model already has starts from the new values at its next step, as after
/// set_parameter.
template <class Model>
void load_parameters(const std::string& file, Model& model, const Rename& rename = {}, const LoadOptions& options = {}) {
  if (checkpoint::detail::has_no_values(model)) return;  // a rehearsal
  const comm::InFunction mark(model.communicator(), comm::ProgramFunction::load_parameters);
  detail::load_parameters(file, model.communicator(), checkpoint::detail::state_of(model), rename, options);
  model.discard_gradients();
}

}  // namespace weft::hugging_face
