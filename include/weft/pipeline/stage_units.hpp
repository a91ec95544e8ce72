// SPDX-License-Identifier: Apache-2.0
#pragma once
// The units of a model that one rank's stages hold. They are cut from the whole model with parameters allocated, shared
// parameters tied and trained parameters registered with the hooks. pipeline/stages.hpp computes with them.
//
//   StageUnits units(settings);
//   units.build(axes, hooks, facts, ModelBuilder<Model, Context>(context, config).take(), make);
//   for (const auto& chunk : units.chunks()) ...

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/context/axes_in_force.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/engine/lora_options.hpp>
#include <weft/engine/step_buffer.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/model_facts.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/pipeline/tied_parameters.hpp>
#include <weft/pipeline/trainable_parameters.hpp>

namespace weft::detail {

class Recheck;  // pipeline/recheck.hpp

/// The settings of a rank's stages other than the model's config.
struct StageSettings {
  schedule::AnySchedule schedule;
  std::shared_ptr<GradientAccumulator> accumulator;
  std::vector<std::size_t> layers = {};            ///< of each stage: PipelineOptions::layers
  schedule::TimelineRecorder* timeline = nullptr;  ///< records the times of this rank's actions in each training step
  std::vector<std::string> freeze = {};            ///< patterns of parameters that are frozen from the start
  std::shared_ptr<Recheck> recheck = nullptr;      ///< null: no micro-batch is computed again
  std::size_t reproducible_degree = 0;             ///< above 0: sums over tp have this many terms
  bool whole_rows = false;                         ///< batch-invariant: a ring over cp, which merges blocks of keys, is refused
  std::vector<std::string> on_host = {};           ///< patterns of units whose activations are in host memory
  LoraOptions lora = {};  ///< if a rank is set, all parameters but the adapters are frozen from the start
};

class StageUnits {
 public:
  using Exec = DefaultDevice::execution_space;
  using AllHooks = std::span<Hooks* const>;

  explicit StageUnits(StageSettings settings) : settings_(std::move(settings)), trainable_(settings_.freeze, settings_.lora) {}

  /// Takes this rank's units from the model, once, and calls make(state) for each parameter of this rank. Collective: throws
  /// LayoutError or UsageError on every rank if the units do not fit the degrees, or if the ranks' models differ.
  void build(const AxesInForce& axes, AllHooks hooks, const ModelFacts& facts, WholeModel<Exec> whole,
             const std::function<void(ParameterState&)>& make);

  /// The stage of each unit of the whole model.
  std::span<const std::size_t> stage_of() const { return stage_of_; }

  const StageSettings& settings() const { return settings_; }
  std::vector<std::unique_ptr<Chunk<Exec>>>& chunks() { return chunks_; }
  Ties& ties() { return ties_; }
  /// The values other than parameters that this rank's layers keep between steps.
  std::span<const std::shared_ptr<StepBuffer>> buffers() const { return buffers_; }
  /// The first layer of the whole model that draws random numbers in a step (Dropout, Noise); empty: none.
  const std::string& draws() const { return draws_; }
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
  void set_trainable(const AxesInForce& axes, AllHooks hooks, std::span<const std::string_view> patterns, bool trainable);

 private:
  std::vector<std::size_t> cut(const ModelFacts& facts, const WholeModel<Exec>& whole, std::size_t stages) const;
  void take_own(const AxesInForce& axes, AllHooks hooks, const ModelFacts& facts, WholeModel<Exec> whole,
                const std::function<void(ParameterState&)>& make);
  void find_backwards(const AxesInForce& axes);
  std::vector<Unit*> units_in_order() const;
  void require_on_host(const WholeModel<Exec>& whole) const;
  bool on_host(std::string_view unit) const;
  void prepare(AllHooks hooks);
  void keep_trainable();

  StageSettings settings_;
  TrainableParameters trainable_;
  std::vector<std::size_t> stage_of_;    // by unit of the whole model
  std::vector<std::size_t> first_unit_;  // by stage
  std::set<std::string> ends_;           // names of the parameters that the first or the last unit uses
  std::vector<std::shared_ptr<StepBuffer>> buffers_;
  std::string draws_;
  std::vector<std::unique_ptr<Chunk<Exec>>> chunks_;
  Ties ties_;
  std::vector<std::vector<ParameterState*>> second_uses_;  // all parameters of the accumulator's second_uses
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/stage_units_impl.hpp>
#endif
