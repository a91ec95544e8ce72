// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stochastic gradient descent that also keeps an exponential moving average (EMA) of the parameters, as
// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn does. The average belongs to the optimizer's state: it is sharded
// with it in every stage of ZeRO, saved in checkpoints, and loads into any layout. The average evaluates better than the
// parameters while their learning rate is high (Polyak and Juditsky 1992).
//
//   optim::AveragedSgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9, .average_decay = 0.999});
//   {
//     const optim::UseAverage average(model, optimizer);   // until the end of the block the parameters are the averages
//     accuracy(model);
//   }

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/device/parallel_for.hpp>
#include <weft/kernels/optimizer.hpp>
#include <weft/optim/optimizer.hpp>
#include <weft/optim/sgd.hpp>

namespace weft::optim {

struct AveragedSgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;  ///< added to the gradient (L2), as in PyTorch
  bool nesterov = false;
  double average_decay = 0.999;             ///< of the average in each step, in [0, 1)
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

/// SgdElement, then average += rate (value - average).
template <class A>
struct AveragedSgdElement {
  static constexpr int buffers = 2;  // momentum, average
  kernels::SgdElement<A, true> descent;
  A rate;

  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(V gradient, V& value, V* kept) const {
    descent(gradient, value, kept);
    kept[1] = kept[1] + V(rate) * (value - kept[1]);
  }
  bool operator==(const AveragedSgdElement&) const = default;
};

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

struct AveragedSgdRule {
  using Options = AveragedSgdOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = 2;
  static constexpr std::array<std::string_view, 2> buffer_names{"momentum_buffer", "average"};

  static void check(const Options& options) {
    detail::check_sgd(options);
    require_option("decay of the average", options.average_decay, 1);
  }

  /// The average starts as the parameter after the first step.
  template <class A>
  static detail::AveragedSgdElement<A> element(const ParameterState&, const Options& options, double learning_rate,
                                               std::uint64_t step) {
    return {detail::sgd_element<A>(options, learning_rate), A(step == 1 ? 1 : 1 - options.average_decay)};
  }
};

using AveragedSgd = Optimizer<AveragedSgdRule>;

/// Exchanges the parameters of a model with their averages, and at its end back, without rounding. Parameters without an average
/// stay: frozen ones, and all of them before the first step. Buffers stay, such as BatchNorm's running statistics, as in
/// AveragedModel with its default use_buffers=False. Between the two no step may be taken. For models in float or double; throws
/// UsageError if the optimizer's state is offloaded.
template <class Model>
class UseAverage {
  using A = weft::detail::computed_t<typename Model::model_type::scalar>;
  static_assert(std::is_same_v<A, accumulate_t<A>>,
                "weft: UseAverage is for models in float or double: a model of 16 bits has a master copy beside its parameters");

 public:
  UseAverage(Model& model, AveragedSgd& optimizer) : model_(&model), optimizer_(&optimizer) {
    for (const Slot& slot : optimizer.slots())
      if (!slot.records.empty())
        throw_error<UsageError>({"the average of ", slot.state->name(),
                                 " is offloaded (ModelOptions::shard.offload), and cannot be used in place of the parameter"});
    exchange();
  }
  UseAverage(const UseAverage&) = delete;
  UseAverage& operator=(const UseAverage&) = delete;
  ~UseAverage() { exchange(); }

 private:
  void exchange() const {
    if (optimizer_->steps() == 0 || model_->device().rehearsal() != nullptr) return;
    for (const Slot& slot : optimizer_->slots())
      if (slot.made && slot.begun < optimizer_->steps() && slot.state->kept() != 0)
        detail::exchange_numbers(model_->device(), slot.state->kept(), static_cast<A*>(slot.state->value().get()),
                                 static_cast<A*>(slot.kept[1].get()));
  }

  Model* model_;
  AveragedSgd* optimizer_;
};

}  // namespace weft::optim
