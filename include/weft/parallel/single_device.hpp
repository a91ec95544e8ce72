// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model on one rank, without any wrapper: what every composition is compared with, and where a program begins.
//
//   SingleDevice<models::Gpt> model(world.device(), config);

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/parallel/nesting.hpp>
#include <weft/parallel/wrapper.hpp>
#include <weft/pipeline/decode.hpp>

namespace weft {

/// A model on one rank, without any wrapper. Every composition is compared with it.
template <class M>
class SingleDevice;

namespace detail {
template <class M>
struct RefusedAlone {
  static constexpr bool said = true;
  static_assert(!is_wrapper<M>,
                "weft: SingleDevice takes a model alone, and this is one in a wrapper: construct that on a mesh, or leave the "
                "wrapper out: SingleDevice<models::Gpt>");
};
}  // namespace detail

/// Stands in for a SingleDevice of a type that is not a model, so that there is only one error.
template <class M>
requires(!detail::AnyModel<M>) class SingleDevice<M> : public detail::Refused<M> {
  static_assert(detail::RefusedAlone<M>::said);

 public:
  using detail::Refused<M>::Refused;
};

template <class M>
class SingleDevice {
 public:
  using model_type = M;
  using Config = typename M::Config;
  using Batch = detail::batch_of_t<M>;

  SingleDevice(DefaultDevice& device,  // what is no Config names a field that it lacks, or fields out of its order
               const Config& config, const ModelOptions& options = {})
      : device_(&device),
        options_(detail::with_store(options, 0, device.rehearsal() != nullptr)),
        loss_scale_(detail::make_loss_scale<typename M::scalar>(options)),
        stages_(here(), config, detail::stage_settings(device, PlainPolicy::schedule(options), options)) {}

  double train_step(const Batch& batch) {
    if (loss_scale_) loss_scale_->apply();
    return stages_.train_step(here(), batch);
  }
  double evaluate(const Batch& batch) { return stages_.evaluate(here(), batch); }
  // Of a batch of another type.
  double train_step(const detail::OtherBatch<model_type> auto& batch) { return detail::refuse_batch<model_type>(batch); }
  double evaluate(const detail::OtherBatch<model_type> auto& batch) { return detail::refuse_batch<model_type>(batch); }
  Prediction predict(const detail::OtherBatch<model_type> auto& batch, Gather = Gather::share) {
    return detail::refuse_batch<model_type>(batch), Prediction();
  }
  std::vector<float> next_logits(std::span<const std::int32_t> tokens) { return detail::next_logits(stages_, here(), tokens); }
  std::vector<double> logits(std::span<const std::int32_t> tokens) { return detail::all_logits(stages_, here(), tokens); }
  Prediction predict(const Batch& batch, Gather gather = Gather::share) {
    return detail::predict(stages_, here(), batch, gather);
  }
  // Tokens one after the other, as Wrapper's.
  std::vector<double> decode(KeyValueCache& cache, std::span<const std::vector<std::int32_t>> tokens) {
    return detail::decode<double>(stages_, here(), cache, tokens, tokens.size() * vocabulary(),
                                  [](const std::vector<double>& logits) { return logits; });
  }
  template <class Choose>
  requires std::is_invocable_r_v<std::vector<std::int32_t>, Choose&, const std::vector<double>&> std::vector<std::int32_t> decode(
      KeyValueCache& cache, std::span<const std::vector<std::int32_t>> tokens, Choose choose) {
    return detail::decode<std::int32_t>(stages_, here(), cache, tokens, tokens.size(), choose);
  }
  std::size_t vocabulary() {
    if constexpr (requires { M::vocabulary(stages_.config()); }) return M::vocabulary(stages_.config());
    else return 0;
  }
  // Loops of one's own, as Wrapper's.
  template <class... X>
  auto forward(const Batch& batch, const X&... x) {
    return forward(batch, detail::whole_batch, x...);
  }
  template <class... X>
  auto forward(const Batch& batch, MicroBatchIndex micro, const X&... x) {
    if (loss_scale_) loss_scale_->apply();
    batch.check();
    return detail::forward_call(stages_, here(), batch, micro, x...);
  }
  auto loss(const Batch& batch, MicroBatchIndex micro = detail::whole_batch) {
    if (loss_scale_) loss_scale_->apply();
    batch.check();
    return detail::model_loss_call(stages_, here(), batch, micro);
  }
  template <class F, class... X>
  auto loss(const Batch& batch, F f, const X&... x) {
    return loss(batch, detail::whole_batch, std::move(f), x...);
  }
  template <class F, class... X>
  auto loss(const Batch& batch, MicroBatchIndex micro, F f, const X&... x) {
    return detail::loss_call(stages_, here(), batch, micro, std::move(f), x...);
  }
  auto inputs(const Batch& batch, MicroBatchIndex micro = detail::whole_batch) {
    return detail::inputs_of_t<M, decltype(here())>(here(), batch).first(detail::micro_of(batch, micro));
  }
  void discard_gradients() { stages_.discard_gradients(); }
  std::vector<double> parameter(std::string_view name) {
    return detail::whole_parameter(device(), communicator(), stages_, name, false, 1);
  }
  std::vector<double> gradient(std::string_view name) {
    stages_.gradients()->complete();
    return detail::whole_parameter(device(), communicator(), stages_, name, true, loss_scale_ ? loss_scale_->applied() : 1);
  }
  const std::vector<std::string>& parameter_names() { return stages_.parameter_names(); }
  /// As Wrapper's.
  template <std::convertible_to<std::string_view>... Pattern>
  void freeze(const Pattern&... patterns) {
    set_trainable(false, patterns...);
  }
  template <std::convertible_to<std::string_view>... Pattern>
  void unfreeze(const Pattern&... patterns) {
    set_trainable(true, patterns...);
  }
  template <class F>
  void for_each_state(F&& f) {
    stages_.for_each_state(f);
  }
  auto buffers() { return stages_.buffers(); }
  auto& stages() { return stages_; }
  /// Calls f(context, stages), as Wrapper's.
  template <class Context, class F>
  auto enter(const Context& context, F&& f) {
    return f(context, stages_);
  }
  /// Does nothing: one rank has nothing to compare.
  void require_equal_parameters() {}
  Communicator communicator() const { return Communicator(); }
  auto& device() const { return *device_; }
  const ModelOptions& options() const { return options_; }
  /// Null if gradients are not scaled.
  const std::shared_ptr<LossScale>& loss_scale() const { return loss_scale_; }

 private:
  template <class... Pattern>
  WEFT_COLD void set_trainable(bool trainable, const Pattern&... patterns) {
    const std::vector<std::string_view> all{std::string_view(patterns)...};
    stages_.set_trainable(here(), communicator(), all, trainable);
  }
  template <class>
  friend class gpu::GraphedStep;
  auto here() const {
    detail::Environment environment;
    environment.seed = options_.seed;
    environment.lora = &options_.lora;
    detail::EngineState engine;
    if (loss_scale_) engine.loss_scale = loss_scale_->value();
    return Context<Compute<DefaultDevice::execution_space, typename M::scalar>>(*device_, std::move(environment),
                                                                                std::move(engine));
  }
  DefaultDevice* device_;
  ModelOptions options_;
  std::shared_ptr<LossScale> loss_scale_;
  detail::Stages<M> stages_;
};

}  // namespace weft
