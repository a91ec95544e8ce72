// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model on one rank, without any wrapper: the reference for every composition, and the beginning of a program.
//
//   SingleDevice<models::Gpt> model(world.device(), config);

#include <memory>
#include <utility>

#include <weft/parallel/model_functions.hpp>
#include <weft/parallel/nesting.hpp>
#include <weft/parallel/wrapper.hpp>

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

/// The context of a model on one rank. `options` must outlive it.
template <class M>
auto context_of_one(DefaultDevice& device, const ModelOptions& options) {
  Environment environment;
  environment.seed = options.seed;
  Context<Compute<DefaultDevice::execution_space, computed_t<typename M::scalar>>> context(device, std::move(environment));
  context.construction.lora = &options.lora;
  return context;
}
}  // namespace detail

/// Stands in for a SingleDevice of a type that is not a model, so that there is only one error.
template <class M>
requires(!detail::AnyModel<M>) class SingleDevice<M> : public detail::Refused<M> {
  static_assert(detail::RefusedAlone<M>::said);

 public:
  using detail::Refused<M>::Refused;
};

template <class M>
class SingleDevice : public detail::ModelFunctions<SingleDevice<M>, M> {
 public:
  using model_type = M;
  using Config = typename M::Config;
  using Batch = detail::batch_of_t<M>;

  SingleDevice(DefaultDevice& device,  // an argument that is no Config names a field that it lacks, or in another order
               const Config& config = detail::no_config<M>(), const ModelOptions& options = {})
      : device_(&device),
        options_(detail::with_store(options, 0, device.rehearsal() != nullptr)),
        loss_scale_(detail::make_loss_scale<detail::computed_t<typename M::scalar>>(options)),
        stages_(context(), config, detail::stage_settings(device, PlainPolicy::schedule(options), options)) {}

  /// No axis is in force.
  static constexpr bool uses(auto) { return false; }
  auto& stages() { return stages_; }
  /// Does nothing: one rank has nothing to compare.
  void require_equal_parameters() {}
  Communicator communicator() const { return Communicator(); }
  auto& device() const { return *device_; }
  const ModelOptions& options() const { return options_; }
  /// Null if gradients are not scaled.
  const std::shared_ptr<LossScale>& loss_scale() const { return loss_scale_; }

 private:
  template <class>
  friend class gpu::GraphedStep;
  friend class detail::ModelFunctions<SingleDevice, M>;
  auto context() const {
    auto context = detail::context_of_one<M>(*device_, options_);
    if (loss_scale_) context.engine.loss_scale = loss_scale_->value();
    return context;
  }
  DefaultDevice* device_;
  ModelOptions options_;
  std::shared_ptr<LossScale> loss_scale_;
  detail::StagesOf<M> stages_;
};

}  // namespace weft
