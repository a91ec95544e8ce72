// SPDX-License-Identifier: Apache-2.0
#pragma once
// An exponential moving average (EMA) of the parameters beside them, as torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn keeps it. The option `ema_decay` of weft's optimizers switches it on. The averages belong to the
// optimizer's state: they are sharded with it in every stage of ZeRO, saved in checkpoints, and load into any layout. Offloaded
// state has none. They evaluate better than the parameters while the learning rate is high (Polyak and Juditsky 1992).
//
//   optim::AdamW optimizer(model, {.learning_rate = 3e-4, .ema_decay = 0.999});
//   {
//     const optim::UseEma averages(model, optimizer);   // until the end of the block the parameters are the averages
//     accuracy(model);
//   }

#include <cstddef>
#include <type_traits>

#include <weft/core/error.hpp>
#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/elementwise.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

namespace detail {

// Not in a member of a class, in which nvcc takes no lambda.
template <class A, class Exec>
void exchange_numbers(Device<Exec>& device, std::size_t n, A* a, A* b) {
  weft::detail::for_each_index(
      device, {"optimizer", 4 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        const A kept = a[i];
        a[i] = b[i];
        b[i] = kept;
      });
}

}  // namespace detail

/// Exchanges the parameters of a model with their averages, and at its end back, without rounding: for evaluation, predictions,
/// and exports of the averages. Parameters without an average stay: frozen ones, and all of them before the first step. Buffers
/// stay, such as BatchNorm's running statistics, as in AveragedModel with its default use_buffers=False. Between the two no step
/// may be taken, and no parameter may be written. Throws UsageError if the optimizer keeps no averages.
template <class Model, class Rule>
class UseEma {
  using P = weft::detail::computed_t<typename Model::model_type::scalar>;
  using A = accumulate_t<P>;

 public:
  UseEma(Model& model, Optimizer<Rule>& optimizer) : model_(&model), optimizer_(&optimizer) {
    if (optimizer.ema_decay() == 0)
      throw_error<UsageError>({"this optimizer keeps no averages of the parameters: give it .ema_decay, such as 0.999"});
    exchange();
  }
  UseEma(const UseEma&) = delete;
  UseEma& operator=(const UseEma&) = delete;
  ~UseEma() { exchange(); }

 private:
  void exchange() const {
    auto& device = model_->device();
    if (optimizer_->steps() == 0 || device.rehearsal() != nullptr) return;
    for (const Slot& slot : optimizer_->slots()) {
      const std::size_t n = slot.state->kept();
      if (!slot.made || slot.begun >= optimizer_->steps() || n == 0) continue;
      A* const values = static_cast<A*>(slot.wide_value());
      detail::exchange_numbers(device, n, values, static_cast<A*>(slot.kept.back().get()));
      if (slot.master) kernels::cast<A, P>(device, n, values, static_cast<P*>(slot.state->value().get()));
    }
  }

  Model* model_;
  Optimizer<Rule>* optimizer_;
};

}  // namespace weft::optim
