// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/stage_units.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <algorithm>

#include <weft/comm/agree.hpp>
#include <weft/core/inline.hpp>
#include <weft/engine/name_pattern.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/pipeline/stage_cut.hpp>
#include <weft/pipeline/stage_units.hpp>

namespace weft::detail {

// The parameters of a unit that are trained.
WEFT_COLD WEFT_INLINE std::vector<ParameterState*> trained_of(std::vector<ParameterState*> all) {
  std::erase_if(all, [](const ParameterState* state) { return !state->trainable(); });
  return all;
}

// The name without its last component: the name of the layer that made the parameter.
WEFT_INLINE std::string_view layer_name_of(const ParameterState& state) {
  const std::string_view name = state.name();
  const std::size_t dot = name.rfind('.');
  return name.substr(0, dot == std::string_view::npos ? 0 : dot);
}

WEFT_COLD WEFT_INLINE void StageUnits::build(const AxesInForce& axes, AllHooks hooks, const ModelFacts& facts,
                                             WholeModel<Exec> whole, const std::function<void(ParameterState&)>& make) {
  take_own(axes, hooks, facts, std::move(whole), make);
  GradientAccumulator& accumulator = *settings_.accumulator;
  axes.for_each([&](const AxesInForce::One& axis) {
    if (accumulator.separates_terms() && (domain_axes >> axis.id & 1u) && axis.ranks.size() > 1)
      throw_error<UsageError>({"reproducible: ", axis.name, "(", axis.ranks.size(),
                               ") is a domain axis: losses, statistics and gradients are sums over its ranks, which have other "
                               "bits than on one rank; use 1 rank of it, or leave reproducible out"});
    if (accumulator.separates_terms() && axis.data && axis.id != dp::id && axis.ranks.size() > 1)
      throw_error<UsageError>({"reproducible: ", axis.name, "(", axis.ranks.size(),
                               ") is a data axis of a user's own, and the order of sums is known over dp alone: use dp in its "
                               "place, or leave reproducible out"});
  });
  accumulator.find_uses(units_in_order(), hooks, axes.size(dp{}));
  for (Unit& unit : accumulator.second_uses())
    for (ParameterState* state : unit.parameters)
      if (trainable_.frozen_at_first(state->name())) state->set_trainable(false);
  prepare(hooks);
  find_backwards(axes);
}

WEFT_COLD WEFT_INLINE void StageUnits::set_trainable(const AxesInForce& axes, AllHooks hooks,
                                                     std::span<const std::string_view> patterns, bool trainable) {
  const auto set = [&](ParameterState& state) {
    if (matches_any(patterns, state.name())) state.set_trainable(trainable);
  };
  for_each_state(set);
  for (const auto& unit : second_uses_)
    for (ParameterState* state : unit) set(*state);
  trainable_.set(patterns, trainable);
  keep_trainable();
  find_backwards(axes);
  for (Hooks* one : hooks) one->lay_out_gradients();
}

// Recipes are cut between blocks by count; stacks are cut by the cost of their units, or by counts that the program gives.
WEFT_COLD WEFT_INLINE std::vector<std::size_t> StageUnits::cut(const ModelFacts& facts, const WholeModel<Exec>& whole,
                                                               std::size_t stages) const {
  std::vector<std::size_t> counts = settings_.layers;
  if (facts.recipe) {
    const std::size_t blocks = whole.units.size() - 2;
    if (counts.empty()) counts = mesh_layout::even_layers(blocks, stages);
    else mesh_layout::require_stage_layers(counts, blocks, stages);
    ++counts.front(), ++counts.back();
  } else if (!counts.empty()) {
    mesh_layout::require_stage_layers(counts, whole.units.size(), stages, false);
  } else {
    std::vector<double> costs;
    for (const auto& unit : whole.units) {
      double elements = 1;
      for (const ParameterState* state : unit.used) elements += double(state->global().size());
      costs.push_back(unit.cost > 0 ? unit.cost : elements);
    }
    return cut_by_cost(costs, stages);
  }
  return cut_by_count(counts);
}

WEFT_COLD WEFT_INLINE bool StageUnits::on_host(std::string_view unit) const {
  return std::any_of(settings_.on_host.begin(), settings_.on_host.end(),
                     [&](const std::string& pattern) { return matches(pattern, unit); });
}

WEFT_COLD WEFT_INLINE void StageUnits::require_on_host(const WholeModel<Exec>& whole) const {
  std::string names;
  for (const auto& unit : whole.units) append_to(names, {names.empty() ? "" : ", ", unit.name});
  for (const std::string& pattern : settings_.on_host) {
    const auto found =
        std::find_if(whole.units.begin(), whole.units.end(), [&](const auto& unit) { return matches(pattern, unit.name); });
    if (found == whole.units.end())
      throw_error<UsageError>(
          {"ModelOptions::activations.on_host: no unit of the model matches ", shown(pattern), "; it has ", names});
  }
  for (const auto& unit : whole.units)
    if (on_host(unit.name) && !unit.layer->has_tape())
      throw_error<UsageError>({"ModelOptions::activations.on_host: ", unit.name,
                               " has a hand-written backward, whose saved values stay on the device: name other units"});
}

// Every rank builds the whole model, keeps its stages and allocates only their parameters.
WEFT_COLD WEFT_INLINE void StageUnits::take_own(const AxesInForce& axes, AllHooks hooks, const ModelFacts& facts,
                                                WholeModel<Exec> whole, const std::function<void(ParameterState&)>& make) {
  const schedule::AnySchedule& schedule = settings_.schedule;
  const int ranks = int(axes.size(pp{})), rank = int(axes.rank(pp{}));
  const std::size_t stages = std::size_t(ranks * schedule.chunks());
  stage_of_ = cut(facts, whole, stages);
  axes.for_each([&](const AxesInForce::One& axis) {
    const std::uint64_t print[] = {whole.print};
    if (const auto found = difference(axis.ranks, print))
      throw_error<UsageError>(
          {axis.name, " rank ", found->rank, " makes another model than ", axis.name,
           " rank 0, of other names, shapes, initial values or dropouts: all ranks are given the same config"});
  });
  std::vector<int> rank_of;  // by unit of the whole model
  for (const std::size_t stage : stage_of_) rank_of.push_back(schedule.stage_rank(int(stage), ranks));
  for (std::size_t unit = 0; unit < whole.units.size(); ++unit)
    if (rank_of[unit] == rank)
      for (auto& buffer : whole.units[unit].buffers) buffers_.push_back(std::move(buffer));
  if (facts.module == nullptr)
    for (const Registered& parameter : whole.parameters)
      if (!parameter.elsewhere && (parameter.uses.front() == 0 || parameter.uses.back() + 1 == whole.units.size()))
        ends_.insert(parameter.state->name());
  draws_ = whole.draws;
  trainable_.begin(whole);
  require_on_host(whole);
  first_unit_.resize(stages);
  for (std::size_t unit = whole.units.size(); unit-- > 0;) first_unit_[stage_of_[unit]] = unit;
  // If a wrapper gathers a child's parameters at the child's call, each layer of a Module forms a separate part.
  const bool parts =
      facts.module != nullptr && std::any_of(hooks.begin(), hooks.end(), [](Hooks* one) { return one->gathers_children(); });
  chunks_.reserve(schedule.chunks());
  std::vector<ParameterState*> seen;
  for (int index = 0; index < schedule.chunks(); ++index) {
    Chunk<Exec>& chunk = *chunks_.emplace_back(new Chunk<Exec>());
    chunk.stage = schedule.stage(rank, index, ranks);
    chunk.first = chunk.stage == 0;
    chunk.last = std::size_t(chunk.stage) + 1 == stages;
    for (std::size_t unit = 0; unit < whole.units.size(); ++unit) {
      if (stage_of_[unit] != std::size_t(chunk.stage)) continue;
      auto& built = whole.units[unit];
      chunk.layers.push_back(std::move(built.layer));
      chunk.units.push_back({built.name, built.used});
      chunk.on_host.push_back(on_host(built.name));
      chunk.owned.push_back({built.name, {}});
      for (ParameterState* state : built.used) {
        if (std::find(seen.begin(), seen.end(), state) != seen.end()) continue;
        seen.push_back(state);
        if (parts && !chunk.owned.back().parameters.empty() &&
            layer_name_of(*chunk.owned.back().parameters.back()) != layer_name_of(*state))
          chunk.owned.push_back({joined({"part ", chunk.owned.size()}), {}});
        chunk.owned.back().parameters.push_back(state);
        make(*state);
      }
    }
  }
  if (facts.module != nullptr) {
    Chunk<Exec>& chunk = *chunks_.front();
    chunk.calls = std::make_unique<ChildCalls>(facts.module);
    for (ParameterState* state : chunk.units.front().parameters) state->watch(*chunk.calls, 0);
    chunk.trained.resize(chunk.owned.size());
    if (parts) chunk.calls->split(chunk.owned, chunk.trained);
  }
  for (const Registered& parameter : whole.parameters) {
    if (parameter.elsewhere || !ties_.add(axes, parameter, stage_of_, rank_of, settings_.accumulator->separates_terms()))
      continue;
    for (const auto& chunk : chunks_)
      for (Unit& unit : chunk->owned)
        std::erase_if(unit.parameters, [&](const ParameterState* state) { return state == parameter.state.get(); });
  }
}

WEFT_COLD WEFT_INLINE void StageUnits::find_backwards(const AxesInForce& axes) {
  const std::vector<UnitBackward> all = trainable_.backwards(axes);
  for (const auto& chunk : chunks_) {
    const auto first = all.begin() + std::ptrdiff_t(first_unit_[std::size_t(chunk->stage)]);
    chunk->backwards.assign(first, first + std::ptrdiff_t(chunk->layers.size()));
  }
}

// The units of this rank's chunks, in the order of the model.
WEFT_COLD WEFT_INLINE std::vector<Unit*> StageUnits::units_in_order() const {
  std::vector<Chunk<Exec>*> chunks;
  for (const auto& chunk : chunks_) chunks.push_back(chunk.get());
  std::stable_sort(chunks.begin(), chunks.end(), [](const Chunk<Exec>* a, const Chunk<Exec>* b) { return a->stage < b->stage; });
  std::vector<Unit*> units;
  for (Chunk<Exec>* chunk : chunks)
    for (Unit& unit : chunk->units) units.push_back(&unit);
  return units;
}

// Prepares the hooks with the units in the order in which their gradients become ready.
WEFT_COLD WEFT_INLINE void StageUnits::prepare(AllHooks hooks) {
  std::vector<Unit*> order;
  for (std::size_t chunk = chunks_.size(); chunk-- > 0;)
    for (std::size_t unit = chunks_[chunk]->owned.size(); unit-- > 0;) order.push_back(&chunks_[chunk]->owned[unit]);
  for (Unit& unit : ties_.units()) order.push_back(&unit);
  for (Unit& unit : settings_.accumulator->second_uses()) {
    order.push_back(&unit);
    second_uses_.push_back(unit.parameters);
  }
  for (Hooks* one : hooks) one->prepare(order);  // frozen parameters too: layers use their values
  keep_trainable();
}

// Updates the units whose gradients become ready. They omit frozen parameters, so that wrappers and accumulators do not see
// these.
WEFT_COLD WEFT_INLINE void StageUnits::keep_trainable() {
  for (const auto& chunk : chunks_) {
    chunk->trained.resize(chunk->owned.size());
    for (std::size_t unit = 0; unit < chunk->owned.size(); ++unit) {
      chunk->trained[unit].name = chunk->owned[unit].name;
      chunk->trained[unit].parameters = trained_of(chunk->owned[unit].parameters);
    }
  }
  for (std::size_t tie = 0; tie < ties_.units().size(); ++tie)
    ties_.units()[tie].parameters = trained_of({ties_.all()[tie].state});
  for (std::size_t use = 0; use < second_uses_.size(); ++use)
    settings_.accumulator->second_uses()[use].parameters = trained_of(second_uses_[use]);
}

}  // namespace weft::detail
