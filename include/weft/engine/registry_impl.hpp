// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/registry.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <cstddef>
#include <utility>

#include <weft/core/inline.hpp>
#include <weft/engine/registry.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE bool Registry::add(const std::shared_ptr<ParameterState>& state) {
  if (defers_) made_.push_back({state, unit_, {}, 1});
  return defers_;
}

WEFT_COLD WEFT_INLINE void Registry::add_elsewhere(std::string name, const Shape& global) {
  if (!defers_) return;
  ParameterInfo info;
  info.name = std::move(name);
  info.global = global;
  made_.push_back({std::make_shared<ParameterState>(std::move(info)), unit_, {}, 1, true});
}

WEFT_COLD WEFT_INLINE void Registry::add_site(const std::string& path, const char* what, double number) {
  print_ = hash_of(hash_of(print_, hash_bytes(path.data(), path.size())), std::bit_cast<std::uint64_t>(number));
  const auto [at, added] = sites_.try_emplace(path, unit_);
  if (!added)
    throw_error<UsageError>({"two ", what, " under one path, ", path.empty() ? "the model's own" : path, " (",
                             both(at->second, unit_),
                             "): they would draw the same mask; give each its own path, context / \"name\""});
}

WEFT_COLD WEFT_INLINE std::shared_ptr<void>& Registry::shared(const std::string& path, const void* kind) {
  Shared& shared = shared_[path];
  if (shared.kind != nullptr && shared.kind != kind)
    throw_error<UsageError>({"shared_layer ", path, " is asked for as two types of layer"});
  shared.kind = kind;
  return shared.layer;
}

WEFT_COLD WEFT_INLINE std::vector<long> Registry::handles() const {
  std::vector<long> counts;
  for (const Registered& entry : made_) counts.push_back(entry.state.use_count());
  return counts;
}

WEFT_COLD WEFT_INLINE void Registry::keep_handles(const std::vector<long>& before) {
  for (std::size_t i = 0; i < before.size(); ++i) made_[i].handles += made_[i].state.use_count() - before[i];
}

WEFT_COLD WEFT_INLINE void Registry::begin_unit(std::string unit) {
  unit_ = std::move(unit);
  for (Registered& entry : made_) entry.handles = entry.state.use_count();
}

WEFT_COLD WEFT_INLINE std::vector<ParameterState*> Registry::end_unit(std::size_t unit) {
  // By name, since compilers differ in the order in which they make the arguments of a constructor.
  for (std::size_t i = checked_; i < made_.size(); ++i)
    for (std::size_t j = i; j > checked_ && made_[j].state->name() < made_[j - 1].state->name(); --j)
      std::swap(made_[j], made_[j - 1]);
  for (; checked_ < made_.size(); ++checked_) {
    Registered& entry = made_[checked_];
    if (entry.state.use_count() == 1) continue;  // made and discarded, or elsewhere
    const auto [at, added] = by_name_.try_emplace(entry.state->name(), checked_);
    note(*entry.state);
    if (!added)
      throw_error<UsageError>({"two parameters named ", entry.state->name(), ", made by ",
                               both(made_[at->second].unit, entry.unit),
                               ": a name is one parameter. Give each its own path (context / \"blocks\" / "
                               "std::to_string(index)), or share the first one by handing on a copy of its Parameter"});
  }
  std::vector<ParameterState*> used;
  for (Registered& entry : made_) {
    if (entry.state.use_count() <= entry.handles) continue;  // no handle more than before this unit
    entry.uses.push_back(unit);
    used.push_back(entry.state.get());
  }
  return used;
}

WEFT_COLD WEFT_INLINE std::vector<Registered> Registry::used_parameters() {
  std::vector<Registered> all;
  for (Registered& entry : made_)
    if (entry.elsewhere || !entry.uses.empty()) all.push_back(std::move(entry));
  made_.clear();
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
