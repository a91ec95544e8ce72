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
#include <vector>

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

/// copy = a, then a = a + beyond (b - a).
template <class A, class Exec>
void extrapolate_numbers(Device<Exec>& device, std::size_t n, A beyond, A* a, const A* b, A* copy) {
  weft::detail::for_each_index(
      device, {"optimizer", 4 * n * sizeof(A)}, n, KOKKOS_LAMBDA(const std::size_t i) {
        copy[i] = a[i];
        a[i] = a[i] + beyond * (b[i] - a[i]);
      });
}

}  // namespace detail

/// Exchanges the parameters of a model with their averages, and at its end back, without rounding: for evaluation, predictions,
/// and exports of the averages. Parameters without an average stay: frozen ones, and all of them before the first step. Buffers
/// stay, such as BatchNorm's running statistics, as in AveragedModel with its default use_buffers=False. Between the two no step
/// may be taken, and no parameter may be written. Throws UsageError if the optimizer keeps no averages. Schedule-free AdamW needs
/// no ema_decay: its averages are computed here, and a copy of the parameters is kept until the end.
template <class Model, class Rule>
class UseEma {
  using P = weft::detail::computed_t<typename Model::model_type::scalar>;
  using A = accumulate_t<P>;

 public:
  UseEma(Model& model, Optimizer<Rule>& optimizer) : model_(&model), optimizer_(&optimizer) {
    if constexpr (averages_itself) {
      extrapolate();
    } else {
      if (optimizer.ema_decay() == 0)
        throw_error<UsageError>({"this optimizer keeps no averages of the parameters: give it .ema_decay, such as 0.999"});
      exchange();
    }
  }
  UseEma(const UseEma&) = delete;
  UseEma& operator=(const UseEma&) = delete;
  ~UseEma() {
    if constexpr (averages_itself) restore();
    else exchange();
  }

 private:
  // A rule whose average lies on the line through the parameter and its first buffer (optim/schedule_free.hpp).
  static constexpr bool averages_itself = requires(const typename Rule::Options& options) { Rule::average_beyond(options); };

  // Calls f(values, slot, elements) for each slot with an average, and rounds the values to the model's type.
  template <class F>
  void for_each_averaged(F&& f) const {
    auto& device = model_->device();
    if (optimizer_->steps() == 0 || device.rehearsal() != nullptr) return;
    for (const Slot& slot : optimizer_->slots()) {
      const std::size_t n = slot.state->kept();
      if (!slot.made || slot.begun >= optimizer_->steps() || n == 0) continue;
      A* const values = static_cast<A*>(slot.wide_value());
      f(values, slot, n);
      if (slot.master) kernels::cast<A, P>(device, n, values, static_cast<P*>(slot.state->value().get()));
    }
  }
  void exchange() const {
    for_each_averaged([&](A* values, const Slot& slot, std::size_t n) {
      detail::exchange_numbers(model_->device(), n, values, static_cast<A*>(slot.kept.back().get()));
    });
  }
  void extrapolate() {
    for (const Slot& slot : optimizer_->slots())
      if (!slot.records.empty())
        throw_error<UsageError>(
            {"UseEma: the optimizer's state is offloaded (ModelOptions::shard.offload), and averages are "
             "computed on the device: leave offload out"});
    const double beyond = Rule::average_beyond(optimizer_->options());
    for_each_averaged([&](A*, const Slot&, std::size_t n) { before_.push_back(model_->device().allocate(n * sizeof(A))); });
    std::size_t next = 0;  // after all copies have memory: an error leaves the parameters as they are
    for_each_averaged([&](A* values, const Slot& slot, std::size_t n) {
      detail::extrapolate_numbers(model_->device(), n, A(beyond), values, static_cast<const A*>(slot.kept[0].get()),
                                  static_cast<A*>(before_[next++].get()));
    });
  }
  void restore() {
    std::size_t next = 0;
    for_each_averaged([&](A* values, const Slot&, std::size_t n) {
      weft::detail::copy_rows(model_->device(), 1, n, static_cast<const A*>(before_[next++].get()), n, values, n);
    });
  }

  Model* model_;
  Optimizer<Rule>* optimizer_;
  std::vector<weft::detail::Buffer> before_;  // the parameters, if the rule averages itself
};

}  // namespace weft::optim
