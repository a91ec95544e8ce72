// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/registry.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/engine/registry.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE Registry::~Registry() {
  for (const auto& made : made_)
    if (const auto state = made.lock()) state->set_registry(nullptr);
  for (const Registered& one : parameters_) one.state->set_registry(nullptr);
}

WEFT_COLD WEFT_INLINE bool Registry::add(const std::shared_ptr<ParameterState>& state) {
  if (!defers_) return false;
  made_.push_back(state);
  state->set_registry(this);
  return true;
}

WEFT_COLD WEFT_INLINE void Registry::add_elsewhere(std::string name, const Shape& global) {
  if (!defers_) return;
  ParameterInfo info;
  info.name = std::move(name);
  info.global = global;
  elsewhere_.push_back(std::make_shared<ParameterState>(std::move(info)));
}

WEFT_COLD WEFT_INLINE void Registry::add_site(const std::string& path, const char* what, double number) {
  print_ = hash_of(hash_of(print_, hash_bytes(path.data(), path.size())), std::bit_cast<std::uint64_t>(number));
  const auto [at, added] = sites_.try_emplace(path, unit_);
  if (!added)
    throw_error<UsageError>({"two ", what, " under one path, ", path.empty() ? "the model's own" : path, " (",
                             both(at->second, unit_),
                             "): they would draw the same numbers; give each its own path, context / \"name\""});
}

WEFT_COLD WEFT_INLINE std::shared_ptr<void>& Registry::shared(const std::string& path, const void* kind) {
  Shared& shared = shared_[path];
  if (shared.kind != nullptr && shared.kind != kind)
    throw_error<UsageError>({"shared_layer ", path, " is asked for as two types of layer"});
  shared.kind = kind;
  return shared.layer;
}

WEFT_COLD WEFT_INLINE void Registry::begin_unit(std::string unit) {
  take_made();
  unit_ = std::move(unit);
  copied_.clear();
}

WEFT_COLD WEFT_INLINE void Registry::take_made() {
  std::vector<Registered> all;
  for (const auto& made : made_)
    if (auto state = made.lock()) all.push_back({std::move(state), unit_, {}});
  for (auto& state : elsewhere_) all.push_back({std::move(state), unit_, {}, true});
  made_.clear();
  elsewhere_.clear();
  // By name, since compilers differ in the order in which they make the arguments of a constructor; equal names as made.
  std::vector<std::pair<std::string_view, std::size_t>> order;
  for (const Registered& one : all) order.emplace_back(one.state->name(), order.size());
  std::sort(order.begin(), order.end());
  for (const auto& [name, place] : order) {
    Registered& one = all[place];
    if (!one.elsewhere) {
      const auto [at, added] = by_name_.try_emplace(one.state->name(), parameters_.size());
      note(*one.state);
      if (!added)
        throw_error<UsageError>({"two parameters named ", one.state->name(), ", made by ",
                                 both(parameters_[at->second].unit, one.unit),
                                 ": a name is one parameter. Give each its own path (context / \"blocks\" / "
                                 "std::to_string(index)), or share the first one by handing on a copy of its Parameter"});
    }
    parameters_.push_back(std::move(one));
  }
}

WEFT_COLD WEFT_INLINE std::vector<ParameterState*> Registry::end_unit(std::size_t unit) {
  const std::size_t before = parameters_.size();
  take_made();
  std::sort(copied_.begin(), copied_.end());
  std::vector<ParameterState*> used;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Registered& one = parameters_[i];
    if (one.elsewhere || (i < before && !std::binary_search(copied_.begin(), copied_.end(), one.state.get()))) continue;
    one.uses.push_back(unit);
    used.push_back(one.state.get());
  }
  return used;
}

WEFT_COLD WEFT_INLINE std::vector<Registered> Registry::used_parameters() {
  for (const Registered& one : parameters_) one.state->set_registry(nullptr);
  std::vector<Registered> all = std::exchange(parameters_, {});
  std::erase_if(all, [](const Registered& one) { return !one.elsewhere && one.uses.empty(); });
  shared_.clear();
  return all;
}

WEFT_INLINE void Registry::note(const ParameterState& state) {
  if (state.info().expert_data) return;
  print_ = hash_of(print_, hash_bytes(state.name().data(), state.name().size()));
  for (std::size_t dim = 0; dim < state.global().rank(); ++dim) print_ = hash_of(print_, state.global()[dim]);
  print_ = hash_of(print_, hash_of_values(state.info().initial));
}

}  // namespace weft::detail
