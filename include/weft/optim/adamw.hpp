// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101), PyTorch's formula, fused into one pass over
// memory. bfloat16 parameters have a master copy in float.
//
//   optim::AdamW optimizer(model, {.learning_rate = 3e-4, .clip = 1.0});

#include <array>
#include <cmath>
#include <string_view>

#include <weft/optim/optimizer.hpp>

namespace weft::optim {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;
  bool decay_vectors = true;                ///< as in PyTorch; false: biases and gains of norms do not decay
  double clip = 0;                          ///< largest global gradient norm; 0: no clipping
  std::vector<ParameterGroup> groups = {};  ///< parameters with options of their own
};

struct AdamWRule {
  using Options = AdamWOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = 2;                                                        // first and second moment
  static constexpr std::array<std::string_view, 2> buffer_names{"exp_avg", "exp_avg_sq"};  // in checkpoints, as PyTorch's

  static void check(const Options& options) {
    require_option("beta1", options.beta1, 1);
    require_option("beta2", options.beta2, 1);
    require_option("epsilon", options.epsilon, largest_decay);
    require_option("weight decay", options.weight_decay, largest_decay);
  }

  template <class P, class Exec>
  static void update(Device<Exec>& device, Slot& slot, const Options& options, double learning_rate, double gradient_scale,
                     std::uint64_t step) {
    using A = accumulate_t<P>;
    const double decay = slot.state->global().rank() > 1 || options.decay_vectors ? options.weight_decay : 0;
    kernels::AdamwOptions fused{.learning_rate = learning_rate,
                                .beta1 = options.beta1,
                                .beta2 = options.beta2,
                                .epsilon = options.epsilon,
                                .weight_decay = decay,
                                .bias_correction1 = 1 - std::pow(options.beta1, double(step)),
                                .bias_correction2 = 1 - std::pow(options.beta2, double(step)),
                                .gradient_scale = gradient_scale};
    kernels::adamw_update<P, A>(device, slot.state->kept(), static_cast<P*>(slot.state->value().get()),
                                static_cast<A*>(slot.master.get()), static_cast<const A*>(slot.state->gradient().get()),
                                static_cast<A*>(slot.kept[0].get()), static_cast<A*>(slot.kept[1].get()), fused);
  }
};

using AdamW = Optimizer<AdamWRule>;

}  // namespace weft::optim

#if defined(WEFT_COMPILED) && !defined(KOKKOS_ENABLE_CUDA)
namespace weft::optim {
extern template class Optimizer<AdamWRule>;
extern template Slot Optimizer<AdamWRule>::make_slot<float>(ParameterState&);
extern template void AdamWRule::update<float, Kokkos::DefaultHostExecutionSpace>(Device<Kokkos::DefaultHostExecutionSpace>&,
                                                                                 Slot&, const AdamWOptions&, double, double,
                                                                                 std::uint64_t);
extern template Slot Optimizer<AdamWRule>::make_slot<bfloat16>(ParameterState&);
extern template void AdamWRule::update<bfloat16, Kokkos::DefaultHostExecutionSpace>(Device<Kokkos::DefaultHostExecutionSpace>&,
                                                                                    Slot&, const AdamWOptions&, double, double,
                                                                                    std::uint64_t);
}  // namespace weft::optim
#endif
