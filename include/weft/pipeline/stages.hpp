// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's chunks of a model with the operations on them: training, evaluation, logits. The innermost object that wrappers wrap.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/agreement.hpp>
#include <weft/core/philox.hpp>
#include <weft/core/text.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/layer/batch.hpp>
#include <weft/layer/lora_options.hpp>
#include <weft/layer/model_check.hpp>
#include <weft/layer/name_pattern.hpp>
#include <weft/layer/parameter.hpp>
#include <weft/layer/plain_accumulator.hpp>
#include <weft/layer/step_buffer.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/learn_shapes.hpp>
#include <weft/pipeline/loss_axes.hpp>
#include <weft/pipeline/loss_count.hpp>
#include <weft/pipeline/model_run.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/stage_cut.hpp>
#include <weft/pipeline/tied_parameters.hpp>
#include <weft/pipeline/trainable_parameters.hpp>
#include <weft/pipeline/unreduced_gradients.hpp>
#include <weft/pipeline/whole_loss_check.hpp>

namespace weft {

namespace detail {

/// The settings of a rank's stages beside the model's config.
struct StageSettings {
  schedule::AnySchedule schedule;
  std::shared_ptr<GradientAccumulator> accumulator;
  schedule::TimelineRecorder* timeline = nullptr;  ///< records the times of this rank's actions in each training step
  std::vector<std::string> freeze = {};            ///< patterns of parameters that are frozen from the start
  LoraOptions lora = {};                           ///< with a rank: all but adapters are frozen from the start
};

template <class Model>
class Stages {
 public:
  using model_type = Model;
  using Config = typename Model::Config;
  using Batch = batch_of_t<Model>;
  using Exec = DefaultDevice::execution_space;
  static constexpr bool has_tokens = std::is_same_v<Batch, TokenBatch>;

  template <class Context>
  WEFT_COLD Stages(const Context& context, const Config& config, StageSettings settings)
      : settings_(std::move(settings)), config_(config), trainable_(settings_.freeze, settings_.lora) {
    if constexpr (is_usable<Model, Context>() || is_open<Model, Context>) construct(context, config);
    else if constexpr (!can_be_built<Model, Context>) refuse_model<Model, Context>();
  }

  /// One step: forward and backward of all micro-batches, gradients summed over every axis. Returns the mean loss over the tokens
  /// of the global batch that count, in double, the same on every rank. Gradients start anew with each call; optimizer.step()
  /// applies them. Auxiliary losses of routers are in the gradients and not in the returned loss: buffers() has them ("load", see
  /// Router). Throws UsageError on every rank if no target of the global batch counts.
  template <class Context>
  double train_step(const Context& context, const Batch& whole) {
    if constexpr (is_open<Model, Context>) return refuse_training<Model>(), 0;
    else if constexpr (is_usable<Model, Context>()) return train(context, whole);
    else return 0;
  }

  /// The mean loss of a batch, without dropout and without gradients. Throws UsageError as train_step does.
  template <class Context>
  double evaluate(const Context& context, const Batch& whole) {
    if constexpr (is_open<Model, Context>) return refuse_training<Model>(), 0;
    else if constexpr (is_usable<Model, Context>()) return forward_for_loss(context, whole);
    else return 0;
  }
  /// Every parameter of this rank, once.
  template <class F>
  void for_each_state(F&& f) {
    for (const auto& chunk : chunks_)
      for (Unit& unit : chunk->owned)
        for (ParameterState* state : unit.parameters) f(*state);
    for (const Tie& tie : ties_.all()) f(*tie.state);
  }

  /// The values that this rank's layers keep from step to step beside their parameters.
  std::span<const std::shared_ptr<StepBuffer>> buffers() const { return buffers_; }

  /// The names of all parameters of the model, in its order; the same on every rank.
  const std::vector<std::string>& parameter_names() const { return trainable_.names(); }
  /// The elements of the whole parameter of that name, whichever rank holds it; 0 if there is none.
  std::size_t parameter_size(std::string_view name) const { return trainable_.size_of(name); }
  /// Sets whether parameters are trainable, those that a pattern matches; see Wrapper::freeze. Collective over `everyone`.
  template <class Context>
  WEFT_COLD void set_trainable(const Context& context, const Communicator& everyone, std::span<const std::string_view> patterns,
                               bool trainable) {
    require_matches(everyone, parameter_names(), patterns, trainable ? "unfreeze" : "freeze");
    if (gradients_.use_count() > 1 && !gradients_->applied)
      throw_error<UsageError>({trainable ? "unfreeze" : "freeze",
                               " between train_step and the optimizer's step: the gradients would be lost. Call it after the "
                               "step, or call model.discard_gradients() first"});
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
    ++changes_;
  }
  /// Whether neither the first unit nor the last one uses the parameter: it is neither an embedding nor a head.
  bool inner(const ParameterState& state) const { return !ends_.contains(state.name()); }
  /// How often the set of trainable parameters has changed.
  std::uint64_t trainable_changes() const { return changes_; }

  /// Shared with the optimizers of this model.
  const std::shared_ptr<StepGradients>& gradients() const { return gradients_; }

  const Config& config() const { return config_; }
  const schedule::AnySchedule& schedule() const { return settings_.schedule; }

  /// The accumulator that adds up the gradients of this model; shared with its optimizers.
  const std::shared_ptr<GradientAccumulator>& accumulator() const { return settings_.accumulator; }

  // ---- The parts of a training step, for a caller that runs them in another way (parallel/cuda/graphed_step.hpp).

  auto& chunks() { return chunks_; }
  /// Whether this is the first time that the model's loss is computed in training, which is then checked to be a sum; or one of
  /// an own loop's losses, each of a type of its own.
  bool checks_loss(const void* kind = nullptr) { return losses_checked_.insert(kind).second; }
  /// The schedule's table for this batch. Throws as train_step does.
  template <class Context>
  const schedule::Table& table(const Context& context, const Batch& batch) {
    check(batch);
    check_length(longest_of(batch));
    const int ranks = static_cast<int>(context.size(pp{})), micro = static_cast<int>(share_of(batch).micro_batches);
    if (!table_ || table_->micro_batches != micro) table_ = settings_.schedule.table(ranks, micro);
    return *table_;
  }
  template <class Context>
  static LossCounts count_targets(const Context& context, const Batch& batch) {
    return detail::count_targets<Model>(context, batch);
  }
  /// Called after all micro-batches: adds the gradients of shared parameters and completes the sums over data ranks.
  template <class Context>
  void finish_gradients(const Context& context) {
    settings_.accumulator->finish(ties_.all(), ties_.units(), context.engine.hooks);
  }
  /// Called when every unit's gradients are ready: completes their sums, agrees on which parameters have one, and checks it.
  template <class Context>
  void complete_step(const Context& context) {
    finish_gradients(context);
    agree_on_gradients(context);
  }
  /// The host's part of that, which asks no device.
  template <class Context>
  void agree_on_gradients(const Context& context) {
    for_each_data_axis(context, [&](const Communicator& ranks) { detail::agree_on_touched(ranks, *this); });
    detail::renew(context, buffers_);
    for_each_state([](ParameterState& state) { require_reduced(state); });
  }
  /// The gradients so far will not be used.
  void discard_gradients() {
    discard_open_step();
    gradients_->applied = true;
  }
  /// The sum of the losses of all micro-batches of all ranks.
  template <class Context>
  double total_loss(const Context& context, std::vector<double> losses) const {
    losses = settings_.accumulator->loss_terms(std::move(losses), context.rank(dp{}), context.size(dp{}));
    if constexpr (Context::has(tp{})) context.comm(tp{}).check();  // its messages went between devices, which tell nobody
    if constexpr (Context::has(pp{})) context.comm(pp{}).all_reduce(losses);
    LossAxes<typename ModelTypes<Model, Context>::Loss>::require_same(context, losses);
    LossAxes<typename ModelTypes<Model, Context>::Loss>::all_reduce(context, losses);
    return tree_sum(losses);
  }

  // ---- The parts of a forward alone (pipeline/predictions.hpp).

  // What a forward gathers and releases would disturb what the open step keeps.
  WEFT_COLD void require_no_open_step(std::string_view what) const {
    if (gradients_->open)
      throw_error<UsageError>({what,
                               " between a forward of a loop of one's own and the optimizer's step: call it before forward or "
                               "after the step, or model.discard_gradients() first"});
  }
  void check(const Batch& batch) const {
    if constexpr (has_tokens && requires { Model::vocabulary(config_); }) batch.check(Model::vocabulary(config_));
    else batch.check();
    check_batch_of<Model>(config_, batch);
  }
  // Positions beyond those that the model was made for are meaningless, whether it has a table of them or computes them.
  void check_length([[maybe_unused]] std::size_t length) const {
    if constexpr (requires { Model::sequence(config_); })
      if (length > Model::sequence(config_))
        throw_error<ShapeError>({"a sequence of ", length, " tokens, but the model was made for at most ",
                                 Model::sequence(config_), " (sequence in its config)"});
  }
  template <class Context>
  schedule::Table forward_table(const Context& context, const Batch& batch) const {
    check(batch);
    return detail::forward_table(settings_.schedule, int(context.size(pp{})), int(share_of(batch).micro_batches));
  }
  template <class Context>
  static decltype(auto) part_of(const Context& context, const Batch& batch) {
    if constexpr (Context::has(cp{}) && has_tokens) return cut_over_cp(context, batch);
    else return (batch);
  }
  /// In a rehearsal, tells the run the shapes of what other stages send it.
  template <class Context>
  void rehearse_stages([[maybe_unused]] const Context& context, [[maybe_unused]] const Batch& part,
                       [[maybe_unused]] ModelRun<Model, Context>& run) {
    if constexpr (Context::has(pp{})) {
      if (context.device().rehearsal() == nullptr || context.size(pp{}) == 1) return;
      if (!shapes_) shapes_ = std::make_unique<StageShapes>();
      learn_shapes<Model>(
          context, config_, part, settings_.schedule, *settings_.accumulator,
          [&](const WholeModel<Exec>& whole) { return stages_of(whole, first_unit_.size()); }, *shapes_);
      run.executor.rehearse(*shapes_);
    }
  }
  template <class Context>
  static void finish(const Context& context) {
    for (Hooks* hooks : context.engine.hooks) hooks->finish();
  }

 private:
  void discard_open_step() {
    if (std::exchange(gradients_->open, nullptr)) for_each_state([](ParameterState& state) { state.gradients().discard(); });
  }
  template <class Context>
  double train(const Context& context, const Batch& whole) {
    const schedule::Table& table = this->table(context, whole);
    const auto& batch = part_of(context, whole);
    if (gradients_.use_count() > 1 && !gradients_->applied)
      throw_error<UsageError>(
          {"train_step twice without an optimizer's step between them: the gradients of the first would be lost. To accumulate, "
           "give one Batch with more micro_batches; to go on without them, call model.discard_gradients()"});
    const auto [count, tokens] = count_targets(context, whole);
    discard_open_step();
    if constexpr (has_whole_loss<Model, Context>)
      if (checks_loss()) require_whole_loss_is_a_sum(*this, context, whole);
    for_each_state([](ParameterState& state) { state.gradients().begin_step(); });
    settings_.accumulator->begin(share_of(whole), context.engine.hooks, context.rank(dp{}), context.size(dp{}));
    ModelRun<Model, Context> run(context, chunks_, table, batch, *settings_.accumulator,
                                 {.loss_gradient = context.engine.loss_scale / count,
                                  .auxiliary_gradient = context.engine.loss_scale / tokens,
                                  .timeline = settings_.timeline});
    rehearse_stages(context, batch, run);
    run.executor.run({.check_loss = checks_loss()});
    complete_step(context);
    const double loss = total_loss<Context>(context, run.executor.losses()) / count;
    gradients_->applied = !std::isfinite(loss);  // a step without a finite loss has no gradients to lose
    return loss;
  }

  template <class Context>
  double forward_for_loss(const Context& context, const Batch& whole) {
    require_no_open_step("evaluate");
    const schedule::Table table = forward_table(context, whole);
    check_length(longest_of(whole));
    const auto& batch = part_of(context, whole);
    const double count = count_targets(context, whole).counted;
    ModelRun<Model, Context> run(context, chunks_, table, batch, *settings_.accumulator);
    rehearse_stages(context, batch, run);
    run.executor.run({.forward_only = true});
    finish(context);
    return total_loss<Context>(context, run.executor.losses()) / count;
  }

  template <class Context>
  WEFT_COLD void construct(const Context& context, const Config& config) {
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
      if (Model::blocks(config) < std::size_t(stages))
        throw_error<LayoutError>({"layers(", Model::blocks(config), ") < pp(", ranks, ") * chunks(", schedule.chunks(),
                                  "): every stage holds at least one layer"});
    build(context, config, ranks, rank);
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

  // Every rank builds the whole model, keeps its own stages and allocates the parameters of these.
  template <class Context>
  WEFT_COLD void build(const Context& context, const Config& config, int ranks, int rank) {
    WholeModel<Exec> whole = ModelBuilder<Model, Context>(context, config).take();
    const std::size_t stages = std::size_t(ranks * settings_.schedule.chunks());
    const std::vector<std::size_t> stage_of = stages_of(whole, stages);
    const auto rank_of = [&](std::size_t unit) { return settings_.schedule.stage_rank(int(stage_of[unit]), ranks); };
    Context::for_each_axis([&](auto axis) {
      const std::uint64_t print[] = {whole.print};
      if (context.size(axis) > 1 && !same_on_all(context.comm(axis), print))
        throw_error<UsageError>(
            {axis.name, " rank ", first_difference(context.comm(axis), print).rank, " makes another model than ", axis.name,
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
    for (std::size_t unit = whole.units.size(); unit-- > 0;) first_unit_[stage_of[unit]] = unit;
    // Of a Module each layer's parameters are a part, if a wrapper gathers those of a child when it is called.
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
        if (stage_of[unit] != std::size_t(chunk.stage)) continue;
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
                                     context, parameter, [&](std::size_t unit) { return stage_of[unit]; }, rank_of,
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

  // Recipes are cut between their blocks, by number; stacks by what their units cost.
  static std::vector<std::size_t> stages_of(const WholeModel<Exec>& whole, std::size_t stages) {
    if constexpr (ModelRecipe<Model>) {
      return cut_between_blocks(whole.units.size() - 2, stages);
    } else {
      std::vector<double> costs;
      for (const auto& unit : whole.units) {
        double elements = 1;
        for (const ParameterState* state : unit.used) elements += double(state->global().size());
        costs.push_back(unit.cost > 0 ? unit.cost : elements);
      }
      return cut_by_cost(costs, stages);
    }
  }

  // The name without its last part: that of the layer that made the parameter.
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

  // The units whose gradients become ready: without frozen parameters, so that no wrapper and no accumulator sees those.
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
  Config config_;
  TrainableParameters trainable_;
  std::vector<std::size_t> first_unit_;  // of each stage
  std::set<std::string> ends_;           // the names of parameters that the first or the last unit uses
  std::vector<std::shared_ptr<StepBuffer>> buffers_;
  std::vector<std::unique_ptr<Chunk<Exec>>> chunks_;
  Ties ties_;
  std::map<const Unit*, std::vector<ParameterState*>> whole_units_;  // every parameter of a unit, frozen ones as well
  std::shared_ptr<StepGradients> gradients_ = std::make_shared<StepGradients>();
  std::optional<schedule::Table> table_;
  std::unique_ptr<StageShapes> shapes_;  // of a rehearsal
  std::set<const void*> losses_checked_;
  std::uint64_t changes_ = 0;
};

}  // namespace detail

}  // namespace weft
