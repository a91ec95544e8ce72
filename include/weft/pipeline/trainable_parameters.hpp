// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a model that are trained, and the units that therefore have a backward. Every rank computes this for the
// whole model, so the ranks of a pipeline agree on the senders and receivers of gradients.
//
//   TrainableParameters trainable(options.freeze, options.lora);
//   trainable.begin(whole_model);
//   for (const UnitBackward& backward : trainable.backwards(axes)) ...

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/context/axes_in_force.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/engine/name_pattern.hpp>
#include <weft/engine/parameter_state.hpp>
#include <weft/pipeline/chunk.hpp>

namespace weft::detail {

class TrainableParameters {
 public:
  /// `freeze`: patterns of parameters that are frozen from the start. `lora` with a rank: all but adapters are.
  TrainableParameters(std::vector<std::string> freeze, LoraOptions lora) : freeze_(std::move(freeze)), lora_(std::move(lora)) {}

  /// The names of the model's parameters, in its order.
  const std::vector<std::string>& names() const { return names_; }
  /// The elements of the whole parameter of that name, on whatever stage it is; 0 if there is none.
  std::size_t size_of(std::string_view name) const {
    const auto at = std::find(names_.begin(), names_.end(), name);
    return at == names_.end() ? 0 : sizes_[std::size_t(at - names_.begin())];
  }
  bool frozen_at_first(std::string_view name) const {
    return (lora_.rank != 0 && !is_adapter(name)) || matches_any(patterns(), name);
  }

  /// Call when the model is built and nothing is allocated. Throws UsageError on all ranks for a pattern that matches no
  /// parameter.
  template <class Exec>
  WEFT_COLD void begin(WholeModel<Exec>& whole) {
    for (const Registered& parameter : whole.parameters) {
      names_.push_back(parameter.state->name());
      sizes_.push_back(parameter.state->global().size());
    }
    for (const auto& unit : whole.units) {
      auto& uses = uses_.emplace_back();
      for (std::size_t i = 0; i < whole.parameters.size(); ++i)
        if (std::find(unit.used.begin(), unit.used.end(), whole.parameters[i].state.get()) != unit.used.end()) uses.push_back(i);
    }
    frozen_.assign(names_.size(), false);
    if (lora_.rank != 0) require_adapters(names_, lora_);
    if (freeze_.empty() && lora_.rank == 0) return;
    if (!freeze_.empty()) require_found(found_by(patterns(), names_), names_, patterns(), "ModelOptions::freeze");
    for (std::size_t i = 0; i < names_.size(); ++i) {
      frozen_[i] = frozen_at_first(names_[i]);
      if (frozen_[i]) whole.parameters[i].state->set_trainable(false);
    }
  }

  /// Those that a pattern matches are trained from here on, or not.
  void set(std::span<const std::string_view> patterns, bool trainable) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (matches_any(patterns, names_[i])) frozen_[i] = !trainable;
  }

  /// The backward of each unit of the model. Collective if experts are cut.
  WEFT_COLD std::vector<UnitBackward> backwards(const AxesInForce& axes) const {
    std::vector<std::int32_t> trained(uses_.size());
    for (std::size_t unit = 0; unit < uses_.size(); ++unit)
      trained[unit] = std::any_of(uses_[unit].begin(), uses_[unit].end(), [&](std::size_t i) { return !frozen_[i]; });
    if (axes.has(ep{})) axes.for_each([&](const AxesInForce::One& axis) { axis.ranks.all_reduce(trained, Reduction::max); });
    std::vector<UnitBackward> all;
    bool before = false;
    for (const std::int32_t here : trained) {
      all.push_back({before || here != 0, before});
      before = before || here != 0;
    }
    return all;
  }

 private:
  std::vector<std::string_view> patterns() const { return {freeze_.begin(), freeze_.end()}; }

  std::vector<std::string> freeze_;
  LoraOptions lora_;
  std::vector<std::string> names_;
  std::vector<std::size_t> sizes_;              // by name
  std::vector<char> frozen_;                    // by name
  std::vector<std::vector<std::size_t>> uses_;  // by unit, the indices of its parameters in `names_`
};

}  // namespace weft::detail
