// SPDX-License-Identifier: Apache-2.0
#pragma once
// A batch of a model's type with a context's type, given to the engine as a StepBatch. One is made for each call of a model: it
// holds the call's own StepContext, which the executor changes, and the inputs of the model's units.
//
//   ModelBatch<Model, Context> batch(context, config, given);
//   stages.train_step(batch);

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/autograd/model_check.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch.hpp>
#include <weft/engine/child_calls.hpp>
#include <weft/pipeline/batch_inputs.hpp>
#include <weft/pipeline/loss_count.hpp>
#include <weft/pipeline/model_builder.hpp>
#include <weft/pipeline/model_facts.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/model_use.hpp>
#include <weft/pipeline/peer_samples.hpp>
#include <weft/pipeline/some_samples.hpp>
#include <weft/pipeline/step_batch.hpp>

namespace weft::detail {

/// The facts that the types of a model and of a context determine.
template <class Model, class Context>
WEFT_COLD ModelFacts facts_of(const Context& context) {
  ModelFacts facts;
  facts.recipe = ModelRecipe<Model>;
  facts.scalar_bytes = sizeof(typename Context::scalar);
  if constexpr (ModuleModel<Model>) facts.module = &layer_kind<Model>;
  if constexpr (is_open<Model, Context>) return facts;
  else {
    using Types = ModelTypes<Model, Context>;
    facts.one_unit = has_whole_loss<Model, Context>;
    facts.says_sum = says_loss_is_a_sum<typename Types::Last::Layer>;
    facts.loss = loss_axes<typename Types::Loss>(context);
    return facts;
  }
}

template <class Model>
void check_batch(const typename Model::Config& config, const batch_of_t<Model>& batch, BatchUse use) {
  if constexpr (std::is_same_v<batch_of_t<Model>, TokenBatch> && requires { Model::vocabulary(config); })
    batch.check(Model::vocabulary(config), use);
  else batch.check(use);
  check_batch_of<Model>(config, batch);
}
/// Throws ShapeError for sequences that are longer than the model has positions for, in a table or computed.
template <class Model>
WEFT_COLD void require_length([[maybe_unused]] const typename Model::Config& config, [[maybe_unused]] std::size_t length) {
  if constexpr (requires { Model::sequence(config); })
    if (length > Model::sequence(config))
      throw_error<ShapeError>({"a sequence of ", length, " tokens, but the model was made for at most ", Model::sequence(config),
                               " (sequence in its config)"});
}

template <class Model, class Context>
class ModelBatch final : public StepBatch {
 public:
  using Config = typename Model::Config;
  using Batch = batch_of_t<Model>;
  using Step = step_context_t<Context>;
  using Inputs = inputs_of_t<Model, Context>;

  /// The config and the batch must outlive this object.
  ModelBatch(const Context& context, const Config& config, const Batch& batch)
      : ModelBatch(step_context(context), context.construction, config, &batch) {}

  void check(BatchUse use) const override { check_batch<Model>(*config_, *batch_, use); }
  void check_length() const override { require_length<Model>(*config_, longest_of(share())); }
  BatchShare share() const override { return share_of(*batch_); }
  BatchStep step() const override { return batch_->step; }
  LossCounts counts() const override { return counts_of<Model>(*batch_); }
  bool has_tokens() const override { return std::is_same_v<Batch, TokenBatch>; }

  DefaultDevice& device() const override { return context_.device(); }
  Environment& env() override { return context_.env; }
  EngineState& engine() override { return context_.engine; }
  const void* context() const override { return &context_; }
  const void* inputs() override { return &typed_inputs(); }

  Inputs& typed_inputs() {
    if (!inputs_) inputs_.emplace(context_, *batch_);
    return *inputs_;
  }

  std::unique_ptr<StepBatch> some_samples([[maybe_unused]] std::size_t micro, [[maybe_unused]] std::size_t first,
                                          [[maybe_unused]] std::size_t count, [[maybe_unused]] std::size_t times) const override {
    if constexpr (has_whole_loss<Model, Context>)
      return std::unique_ptr<StepBatch>(new ModelBatch(
          context_, construction_, *config_, std::make_unique<Batch>(detail::some_samples(*batch_, micro, first, count, times))));
    else return nullptr;
  }
  WEFT_COLD std::unique_ptr<StepBatch> first_of_peer(const Communicator& data, const Communicator& roles, int to,
                                                     int from) const override {
    std::unique_ptr<ModelBatch> batch(new ModelBatch(context_, construction_, *config_,
                                                     std::make_unique<Batch>(detail::first_of_peer(data, to, from, *batch_))));
    if constexpr (Context::has(dp{})) batch->context_.reorder(dp{}, roles);
    return batch;
  }
  WEFT_COLD std::unique_ptr<StepBatch> without_hooks() const override {
    std::unique_ptr<ModelBatch> batch(new ModelBatch(context_, construction_, *config_, batch_));
    batch->context_.engine.hooks.clear();
    batch->context_.env.cached = nullptr;  // no shape depends on its contents
    return batch;
  }
  WholeModel<Exec> build() const override {
    return ModelBuilder<Model, Context>(constructor_context<Context>(context_, construction_), *config_).take();
  }

 private:
  ModelBatch(Step context, Construction construction, const Config& config, const Batch* batch)
      : context_(std::move(context)), construction_(std::move(construction)), config_(&config), batch_(batch) {}
  ModelBatch(Step context, Construction construction, const Config& config, std::unique_ptr<Batch> batch)
      : ModelBatch(std::move(context), std::move(construction), config, batch.get()) {
    own_ = std::move(batch);
  }

  Step context_;
  Construction construction_;  // for units that are built aside
  const Config* config_;
  const Batch* batch_;
  std::unique_ptr<Batch> own_;  // some samples of another batch
  std::optional<Inputs> inputs_;
};

}  // namespace weft::detail
