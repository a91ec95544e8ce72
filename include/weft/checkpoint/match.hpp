// SPDX-License-Identifier: Apache-2.0
#pragma once
// The comparison of a checkpoint with the model that loads it: the index's tensor for each item of the state, and the errors for
// a checkpoint of another model. Nothing is read or changed here.
//
//   const std::vector<const LogicalTensor*> tensors = detail::match(ranks, path, index, state, true);

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/checkpoint/data_notes.hpp>
#include <weft/checkpoint/error.hpp>
#include <weft/checkpoint/index.hpp>
#include <weft/checkpoint/state.hpp>
#include <weft/checkpoint/together.hpp>
#include <weft/core/data_identity.hpp>

namespace weft::checkpoint::detail {

inline std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 5; ++i) text += (i ? ", " : "") + shown(names[i]);
  if (names.size() > 5) weft::detail::append_to(text, {" and ", names.size() - 5, " more"});
  return text;
}

/// Throws Error if the checkpoint's model has other config numbers than this one. Numbers missing from the checkpoint (of an
/// earlier weft) are not compared.
inline void require_config(const std::string& path, const Index& index, const State& state) {
  for (const auto& [name, value] : state.config)
    if (const auto at = index.notes.find("config." + name); at != index.notes.end() && at->second != value)
      refuse({path}, {"is of a model with ", name, " ", shown(at->second), ", and this one has ", value});
}

/// Throws Error for a checkpoint of a run on other data.
inline void require_data(const std::string& path, const Index& index, const DataIdentity& data) {
  if (const std::string difference = data_difference(index, data); !difference.empty())
    refuse({path}, {difference, ": load it with the same data, or allow others with LoadOptions::other_data"});
}

/// Throws Error for a checkpoint that names its data, which this program does not.
inline void require_unnamed_data(const std::string& path, const Index& index) {
  if (index.notes.contains("data.digest"))
    refuse({path}, {"is of a run on ", stored_data(index),
                    ", and this program does not name its data: give LoadOptions::data, as in {.data = loader.identity()}, or "
                    "allow others with LoadOptions::other_data"});
}

/// True if a tensor of this name holds optimizer state of a parameter: "NAME.exp_avg".
inline bool is_state_of(std::string_view tensor, std::string_view parameter) {
  return tensor.size() > parameter.size() && tensor.starts_with(parameter) && tensor[parameter.size()] == '.' &&
         tensor.find('.', parameter.size() + 1) == tensor.npos;
}
/// True if the checkpoint has this state's parameter, no state of it, and state of other parameters.
inline bool was_frozen(const Index& index, std::string_view state_name) {
  const std::string_view parameter = state_name.substr(0, state_name.rfind('.'));
  bool there = false, any = false;
  for (const LogicalTensor& tensor : index.tensors) {
    there = there || tensor.name == parameter;
    any = any || tensor.kind == "optimizer";
    if (tensor.kind == "optimizer" && is_state_of(tensor.name, parameter)) return false;
  }
  return there && any;
}

/// Returns the tensor of each item. Throws Error on all ranks if the checkpoint is of another model. Collective.
inline std::vector<const LogicalTensor*> match(const Communicator& ranks, const std::string& path, const Index& index,
                                               const State& state, bool with_optimizer) {
  std::vector<const LogicalTensor*> found;
  std::vector<std::uint64_t> used(index.tensors.size() + 1, 0);
  const std::optional<Failure> failure = failure_of([&] {
    std::vector<std::string> missing;
    std::size_t untrained = 0, of_optimizer = 0;
    for (const Item& item : state.items) {
      const auto at = std::lower_bound(index.tensors.begin(), index.tensors.end(), item.name,
                                       [](const LogicalTensor& tensor, const std::string& name) { return tensor.name < name; });
      if (at == index.tensors.end() || at->name != item.name || at->kind != item.kind) {
        missing.push_back(item.name);
        of_optimizer += item.kind == "optimizer";
        untrained += item.kind == "optimizer" && was_frozen(index, item.name);
        continue;
      }
      if (at->shape != item.shape)
        refuse({path, item.name}, {"is ", shape_text(at->shape), ", and ", shape_text(item.shape), " in this model"});
      if (at->of != item.of)
        refuse({path, item.name}, {"is of type ", name_of(at->of), ", and of ", name_of(item.of), " in this model"});
      if (at->type != item.of && at->type != item.wide)
        refuse({path, item.name},
               {"is stored as ", name_of(at->type), ", and ", name_of(item.of), " or ", name_of(item.wide), " is meant"});
      used[std::size_t(at - index.tensors.begin())] = 1;
      found.push_back(&*at);
    }
    // Skip the state of parameters that were trained then and are frozen now.
    for (const std::string& name : state.frozen)
      for (std::size_t i = 0; with_optimizer && i < index.tensors.size(); ++i)
        if (index.tensors[i].kind == "optimizer" && is_state_of(index.tensors[i].name, name)) used[i] = 1;
    if (!missing.empty() && untrained == missing.size())
      refuse({path, missing.front()},
             {"has no optimizer state for parameters that are trained here, ", missing.size(), " tensors (", some_of(missing),
              "): they were frozen. Freeze them, load, and unfreeze them then"});
    const bool of_this_model = of_optimizer == missing.size();
    if (of_this_model && with_optimizer && !index.optimizer_steps)
      refuse({path}, {"holds a model without an optimizer's state: load the model alone, checkpoint::load(folder, model)"});
    if (!missing.empty())
      refuse({path, missing.front()}, {of_this_model ? "is of another optimizer: it lacks " : "is of another model: it lacks ",
                                       missing.size(), " tensors of this one: ", some_of(missing)});
    if (state.loss_scale.has_value() && with_optimizer && !index.loss_scale)
      refuse({path}, {"has no loss scale, and this model scales its loss"});
  });
  require_all(ranks, failure);
  if (ranks.size() > 1) ranks.all_reduce(used, Reduction::max);
  std::vector<std::string> unexpected;
  for (std::size_t i = 0; i < index.tensors.size(); ++i)
    if (!used[i] && index.tensors[i].kind != "hook" && (with_optimizer || index.tensors[i].kind != "optimizer"))
      unexpected.push_back(index.tensors[i].name);
  if (!unexpected.empty())
    refuse({path, unexpected.front()},
           {"is of another model: it has ", unexpected.size(), " tensors that this one has not: ", some_of(unexpected)});
  return found;
}

/// Adds the state of communication hooks, if the checkpoint has exactly the same items. The state belongs to one rank, so in
/// another layout hooks start without state. Collective.
inline void match_hooks(const Communicator& ranks, const Index& index, std::vector<Item>& of_hooks, State& state,
                        std::vector<const LogicalTensor*>& tensors) {
  std::vector<const LogicalTensor*> found;
  for (const Item& item : of_hooks)
    for (const LogicalTensor& tensor : index.tensors)
      if (tensor.name == item.name && tensor.kind == "hook" && tensor.type == item.type && tensor.shape == item.shape)
        found.push_back(&tensor);
  std::uint64_t stored = 0;
  for (const LogicalTensor& tensor : index.tensors) stored += tensor.kind == "hook";
  std::uint64_t numbers[] = {of_hooks.size(), found.size()};
  if (ranks.size() > 1) ranks.all_reduce(std::span(numbers));
  if (numbers[0] != stored || numbers[1] != stored) return;
  for (Item& item : of_hooks) state.items.push_back(std::move(item));
  tensors.insert(tensors.end(), found.begin(), found.end());
}

}  // namespace weft::checkpoint::detail
