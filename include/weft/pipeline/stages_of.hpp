// SPDX-License-Identifier: Apache-2.0
#pragma once
// The stages of a model of a type, the innermost object that wrappers wrap: it builds the model's units from its config and
// gives the engine each call's batch without its type.
//
//   StagesOf<models::Gpt> stages(context, config, settings);
//   double loss = stages.train_step(context, batch);

#include <cstddef>
#include <type_traits>
#include <utility>

#include <weft/autograd/model_check.hpp>
#include <weft/autograd/parameter.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch.hpp>
#include <weft/pipeline/model_batch.hpp>
#include <weft/pipeline/model_builder.hpp>
#include <weft/pipeline/model_use.hpp>
#include <weft/pipeline/stages.hpp>

namespace weft::detail {

template <class Model>
class StagesOf : public Stages {
 public:
  using model_type = Model;
  using Config = typename Model::Config;
  using Batch = batch_of_t<Model>;
  static constexpr bool has_tokens = std::is_same_v<Batch, TokenBatch>;

  /// Collective: throws LayoutError or UsageError on every rank if the config does not fit the degrees, or if the ranks' models
  /// differ.
  template <class Context>
  WEFT_COLD StagesOf(const Context& context, const Config& config, StageSettings settings)
      : Stages(AxesInForce(context), std::move(settings)), config_(config) {
    if constexpr (is_usable<Model, Context>() || is_open<Model, Context>) make_units(context);
    else if constexpr (!can_be_built<Model, Context>) refuse_model<Model, Context>();
  }

  /// See Stages::train_step. Throws UsageError if the model can only be evaluated.
  template <class Context>
  double train_step(const Context& context, const Batch& whole) {
    if constexpr (is_open<Model, Context>) return refuse_training<Model>(), 0;
    else if constexpr (is_usable<Model, Context>()) {
      require_trainable();
      ModelBatch<Model, Context> batch(context, config_, whole);
      return Stages::train_step(batch);
    } else return 0;
  }
  /// See Stages::evaluate.
  template <class Context>
  double evaluate(const Context& context, const Batch& whole) {
    if constexpr (is_open<Model, Context>) return refuse_training<Model>(), 0;
    else if constexpr (is_usable<Model, Context>()) {
      ModelBatch<Model, Context> batch(context, config_, whole);
      return Stages::evaluate(batch);
    } else return 0;
  }

  const Config& config() const { return config_; }
  /// Replaces the texts of the folder that the config was read from. They do not affect results.
  template <class Files>
  void set_files(Files files) {
    config_.files = std::move(files);
  }
  /// Throws if the model can only be evaluated.
  void require_trainable() const {
    if constexpr (requires { Model::require_trainable(config_); }) Model::require_trainable(config_);
  }

 private:
  template <class Context>
  WEFT_COLD void make_units(const Context& context) {
    const int ranks = int(context.size(pp{})), chunks = schedule().chunks();
    schedule().require_ranks(ranks);
    if constexpr (requires(const ModelDegrees& degrees) { Model::check(config_, degrees); })
      Model::check(config_, {.tp = context.size(tp{}),
                             .pp = context.size(pp{}),
                             .chunks = std::size_t(chunks),
                             .cp = context.size(cp{}),
                             .ulysses = uses_ulysses(context),
                             .ep = context.size(ep{}),
                             .etp = context.size(etp{})});
    if constexpr (ModelRecipe<Model>) require_blocks(Model::blocks(config_));
    build(context.engine.hooks, facts_of<Model>(context),
          ModelBuilder<Model, Context>(constructor_context(context), config_).take(),
          [&](ParameterState& state) { make_parameter<typename Context::scalar>(context, state); });
  }

  Config config_;
};

}  // namespace weft::detail
