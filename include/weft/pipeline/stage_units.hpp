// SPDX-License-Identifier: Apache-2.0
#pragma once
// The units of a model that one rank's stages hold. They are cut from the whole model with parameters allocated, shared
// parameters tied and trained parameters registered with the hooks. pipeline/stages.hpp computes with them.
//
//   StageUnits<models::Gpt> units(settings);
//   units.build(context, config);
//   for (const auto& chunk : units.chunks()) ...

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/autograd/model_check.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/comm/agree.hpp>
#include <weft/context/step_buffers.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/engine/name_pattern.hpp>
#include <weft/engine/plain_accumulator.hpp>
#include <weft/mesh/stage_layers.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/pipeline/stage_cut.hpp>
#include <weft/pipeline/tied_parameters.hpp>
#include <weft/pipeline/trainable_parameters.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>

namespace weft::detail {

/// The settings of a rank's stages other than the model's config.
struct StageSettings {
  schedule::AnySchedule schedule;
  std::shared_ptr<GradientAccumulator> accumulator;
  std::vector<std::size_t> layers = {};            ///< of each stage: PipelineOptions::layers
  schedule::TimelineRecorder* timeline = nullptr;  ///< records the times of this rank's actions in each training step
  std::vector<std::string> freeze = {};            ///< patterns of parameters that are frozen from the start
  LoraOptions lora = {};  ///< if a rank is set, all parameters but the adapters are frozen from the start
};

template <class Model>
class StageUnits {
 public:
  using Config = typename Model::Config;
  using Exec = DefaultDevice::execution_space;

  explicit StageUnits(StageSettings settings) : settings_(std::move(settings)), trainable_(settings_.freeze, settings_.lora) {}

  /// Takes this rank's units from the model, once. Collective: throws LayoutError or UsageError on every rank if the config does
  /// not fit the degrees, or if the ranks' models differ.
  template <class Context>
  WEFT_COLD void build(const Context& context, const Config& config) {
    const schedule::AnySchedule& schedule = settings_.schedule;
    const int ranks = static_cast<int>(context.size(pp{})), rank = static_cast<int>(context.rank(pp{})),
              stages = ranks * schedule.chunks();
    schedule.require_ranks(ranks);
    if constexpr (requires(const ModelDegrees& degrees) { Model::check(config, degrees); })
      Model::check(config, {.tp = context.size(tp{}),
                            .pp = context.size(pp{}),
                            .chunks = std::size_t(schedule.chunks()),
                            .cp = context.size(cp{}),
                            .ulysses = uses_ulysses(context),
                            .ep = context.size(ep{}),
                            .etp = context.size(etp{})});
    if constexpr (ModelRecipe<Model>)
      if (settings_.layers.empty() && Model::blocks(config) < std::size_t(stages))
        throw_error<LayoutError>({"layers(", Model::blocks(config), ") < pp(", ranks, ") * chunks(", schedule.chunks(),
                                  "): every stage holds at least one layer"});
    take_own(context, config, ranks, rank);
    Context::for_each_axis([&]<class A>(A axis) {
      if (settings_.accumulator->separates_terms() && is_data_axis<A> && !std::is_same_v<A, dp> && context.size(axis) > 1)
        throw_error<UsageError>({"reproducible: ", A::name, "(", context.size(axis),
                                 ") is a data axis of a user's own, and the order of sums is known over dp alone: use dp in its "
                                 "place, or leave reproducible out"});
    });
    settings_.accumulator->find_uses(units_in_order(), context.engine.hooks, context.size(dp{}));
    for (Unit& unit : settings_.accumulator->second_uses())
      for (ParameterState* state : unit.parameters)
        if (trainable_.frozen_at_first(state->name())) state->set_trainable(false);
    prepare(context);
    find_backwards(context);
  }

  /// The stage of each unit of the whole model.
  std::span<const std::size_t> stage_of() const { return stage_of_; }

  const StageSettings& settings() const { return settings_; }
  auto& chunks() { return chunks_; }
  Ties& ties() { return ties_; }
  /// The values other than parameters that this rank's layers keep between steps.
  std::span<const std::shared_ptr<StepBuffer>> buffers() const { return buffers_; }
  /// The names and sizes of the whole model's parameters, and which of them are trained.
  const TrainableParameters& parameters() const { return trainable_; }
  /// Every parameter of this rank, once.
  template <class F>
  void for_each_state(F&& f) {
    for (const auto& chunk : chunks_)
      for (Unit& unit : chunk->owned)
        for (ParameterState* state : unit.parameters) f(*state);
    for (const Tie& tie : ties_.all()) f(*tie.state);
  }
  /// True if neither the first nor the last unit uses the parameter: it is neither an embedding nor a head.
  bool inner(const ParameterState& state) const { return !ends_.contains(state.name()); }

  /// Makes the parameters that a pattern matches trainable or frozen from now on. Collective.
  template <class Context>
  WEFT_COLD void set_trainable(const Context& context, std::span<const std::string_view> patterns, bool trainable) {
    const auto set = [&](ParameterState& state) {
      if (matches_any(patterns, state.name())) state.set_trainable(trainable);
    };
    for_each_state(set);
    for (Unit& unit : settings_.accumulator->second_uses())
      for (ParameterState* state : whole_units_.at(&unit)) set(*state);
    trainable_.set(patterns, trainable);
    keep_trainable();
    find_backwards(context);
    for (Hooks* hooks : context.engine.hooks) hooks->lay_out_gradients();
  }

 private:
  // Recipes are cut between blocks by count; stacks are cut by the cost of their units, or by counts that the program gives.
  WEFT_COLD std::vector<std::size_t> cut(const WholeModel<Exec>& whole, std::size_t stages) const {
    std::vector<std::size_t> counts = settings_.layers;
    if constexpr (ModelRecipe<Model>) {
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

  // Every rank builds the whole model, keeps its stages and allocates only their parameters.
  template <class Context>
  WEFT_COLD void take_own(const Context& context, const Config& config, int ranks, int rank) {
    WholeModel<Exec> whole = ModelBuilder<Model, Context>(context, config).take();
    const std::size_t stages = std::size_t(ranks * settings_.schedule.chunks());
    stage_of_ = cut(whole, stages);
    const auto rank_of = [&](std::size_t unit) { return settings_.schedule.stage_rank(int(stage_of_[unit]), ranks); };
    Context::for_each_axis([&](auto axis) {
      const std::uint64_t print[] = {whole.print};
      if (const auto found = difference(context.comm(axis), print))
        throw_error<UsageError>(
            {axis.name, " rank ", found->rank, " makes another model than ", axis.name,
             " rank 0, of other names, shapes, initial values or dropouts: all ranks are given the same config"});
    });
    for (std::size_t unit = 0; unit < whole.units.size(); ++unit)
      if (rank_of(unit) == rank)
        for (auto& buffer : whole.units[unit].buffers) buffers_.push_back(std::move(buffer));
    if constexpr (!ModuleModel<Model>)
      for (const Registered& parameter : whole.parameters)
        if (!parameter.elsewhere && (parameter.uses.front() == 0 || parameter.uses.back() + 1 == whole.units.size()))
          ends_.insert(parameter.state->name());
    trainable_.begin(whole);
    first_unit_.resize(stages);
    for (std::size_t unit = whole.units.size(); unit-- > 0;) first_unit_[stage_of_[unit]] = unit;
    // If a wrapper gathers a child's parameters at the child's call, each layer of a Module forms a separate part.
    const auto& hooks = context.engine.hooks;
    const bool parts =
        ModuleModel<Model> && std::any_of(hooks.begin(), hooks.end(), [](Hooks* one) { return one->gathers_children(); });
    chunks_.reserve(settings_.schedule.chunks());
    std::vector<ParameterState*> seen;
    for (int index = 0; index < settings_.schedule.chunks(); ++index) {
      Chunk<Exec>& chunk = *chunks_.emplace_back(new Chunk<Exec>());
      chunk.stage = settings_.schedule.stage(rank, index, ranks);
      chunk.first = chunk.stage == 0;
      chunk.last = std::size_t(chunk.stage) + 1 == stages;
      for (std::size_t unit = 0; unit < whole.units.size(); ++unit) {
        if (stage_of_[unit] != std::size_t(chunk.stage)) continue;
        auto& built = whole.units[unit];
        chunk.layers.push_back(std::move(built.layer));
        chunk.units.push_back({built.name, built.used});
        chunk.owned.push_back({built.name, {}});
        for (ParameterState* state : built.used) {
          if (std::find(seen.begin(), seen.end(), state) != seen.end()) continue;
          seen.push_back(state);
          if (parts && !chunk.owned.back().parameters.empty() &&
              layer_of(*chunk.owned.back().parameters.back()) != layer_of(*state))
            chunk.owned.push_back({joined({"part ", chunk.owned.size()}), {}});
          chunk.owned.back().parameters.push_back(state);
          make_parameter<typename Context::scalar>(context, *state);
        }
      }
    }
    if constexpr (ModuleModel<Model>) {
      Chunk<Exec>& chunk = *chunks_.front();
      chunk.calls = std::make_unique<ChildCalls>(&layer_kind<Model>);
      for (ParameterState* state : chunk.units.front().parameters) state->watch(*chunk.calls, 0);
      chunk.trained.resize(chunk.owned.size());
      if (parts) chunk.calls->split(chunk.owned, chunk.trained);
    }
    for (const Registered& parameter : whole.parameters) {
      if (parameter.elsewhere || !ties_.add(
                                     context, parameter, [&](std::size_t unit) { return stage_of_[unit]; }, rank_of,
                                     settings_.accumulator->separates_terms()))
        continue;
      for (const auto& chunk : chunks_)
        for (Unit& unit : chunk->owned)
          std::erase_if(unit.parameters, [&](const ParameterState* state) { return state == parameter.state.get(); });
    }
  }

  // Finds which units have a backward.
  template <class Context>
  WEFT_COLD void find_backwards(const Context& context) {
    const std::vector<UnitBackward> all = trainable_.backwards(context);
    for (const auto& chunk : chunks_) {
      const auto first = all.begin() + std::ptrdiff_t(first_unit_[std::size_t(chunk->stage)]);
      chunk->backwards.assign(first, first + std::ptrdiff_t(chunk->layers.size()));
    }
  }

  // The name without its last component: the name of the layer that made the parameter.
  static std::string_view layer_of(const ParameterState& state) {
    const std::string_view name = state.name();
    const std::size_t dot = name.rfind('.');
    return name.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  // The units of this rank's chunks, in the order of the model.
  WEFT_COLD std::vector<Unit*> units_in_order() const {
    std::vector<Chunk<Exec>*> chunks;
    for (const auto& chunk : chunks_) chunks.push_back(chunk.get());
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const Chunk<Exec>* a, const Chunk<Exec>* b) { return a->stage < b->stage; });
    std::vector<Unit*> units;
    for (Chunk<Exec>* chunk : chunks)
      for (Unit& unit : chunk->units) units.push_back(&unit);
    return units;
  }
  // Prepares the hooks with the units in the order in which their gradients become ready.
  template <class Context>
  WEFT_COLD void prepare(const Context& context) {
    std::vector<Unit*> order;
    for (std::size_t chunk = chunks_.size(); chunk-- > 0;)
      for (std::size_t unit = chunks_[chunk]->owned.size(); unit-- > 0;) order.push_back(&chunks_[chunk]->owned[unit]);
    for (Unit& unit : ties_.units()) order.push_back(&unit);
    for (Unit& unit : settings_.accumulator->second_uses()) order.push_back(&unit);
    for (const Unit* unit : order) whole_units_[unit] = unit->parameters;
    for (Hooks* hooks : context.engine.hooks) hooks->prepare(order);  // frozen parameters too: layers use their values
    keep_trainable();
  }

  // Updates the units whose gradients become ready. They omit frozen parameters, so that wrappers and accumulators do not see
  // these.
  WEFT_COLD void keep_trainable() {
    const auto trainable_of = [&](const Unit& unit) {
      std::vector<ParameterState*> all = whole_units_.at(&unit);
      std::erase_if(all, [](const ParameterState* state) { return !state->trainable(); });
      return all;
    };
    for (const auto& chunk : chunks_) {
      chunk->trained.resize(chunk->owned.size());
      for (std::size_t unit = 0; unit < chunk->owned.size(); ++unit) {
        chunk->trained[unit].name = chunk->owned[unit].name;
        chunk->trained[unit].parameters = trainable_of(chunk->owned[unit]);
      }
    }
    for (Unit& unit : ties_.units()) unit.parameters = trainable_of(unit);
    for (Unit& unit : settings_.accumulator->second_uses()) unit.parameters = trainable_of(unit);
  }

  StageSettings settings_;
  TrainableParameters trainable_;
  std::vector<std::size_t> stage_of_;    // by unit of the whole model
  std::vector<std::size_t> first_unit_;  // by stage
  std::set<std::string> ends_;           // names of the parameters that the first or the last unit uses
  std::vector<std::shared_ptr<StepBuffer>> buffers_;
  std::vector<std::unique_ptr<Chunk<Exec>>> chunks_;
  Ties ties_;
  std::map<const Unit*, std::vector<ParameterState*>> whole_units_;  // all parameters of each unit, frozen ones included
};

}  // namespace weft::detail
