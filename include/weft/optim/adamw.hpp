// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101), with PyTorch's formula, fused into one pass over
// memory. bfloat16 parameters have a master copy in float.
//
//   optim::AdamW optimizer(model, {.learning_rate = 3e-4, .clip = 1.0});

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/kernels/optimizer.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of AdamW.
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.01;
  bool decay_vectors = true;                ///< as in PyTorch; false: biases and gains of norms do not decay
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                     ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

/// AdamW's options among those of a rule that contains it.
template <class Options>
AdamWOptions adamw_part(const Options& options) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay,
          .decay_vectors = options.decay_vectors};
}

}  // namespace detail

/// The arithmetic of AdamW for one element.
struct AdamWRule {
  using Options = AdamWOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = 2;                                                        // first and second moment
  static constexpr std::array<std::string_view, 2> buffer_names{"exp_avg", "exp_avg_sq"};  // names in checkpoints, as in PyTorch

  static void check(const Options& options) {
    require_option("beta1", options.beta1, 1);
    require_option("beta2", options.beta2, 1);
    require_option("epsilon", options.epsilon, largest_decay);
    require_option("weight decay", options.weight_decay, largest_decay);
  }

  template <class A>
  static kernels::AdamwElement<A> element(const ParameterState& state, const Options& options, double learning_rate,
                                          std::uint64_t step) {
    const double decay = state.global().rank() > 1 || options.decay_vectors ? options.weight_decay : 0;
    return kernels::AdamwElement<A>({.learning_rate = learning_rate,
                                     .beta1 = options.beta1,
                                     .beta2 = options.beta2,
                                     .epsilon = options.epsilon,
                                     .weight_decay = decay,
                                     .bias_correction1 = 1 - std::pow(options.beta1, double(step)),
                                     .bias_correction2 = 1 - std::pow(options.beta2, double(step))});
  }
};

/// AdamW as torch.optim.AdamW has it.
using AdamW = Optimizer<AdamWRule>;

}  // namespace weft::optim

#if defined(WEFT_COMPILED) && !defined(KOKKOS_ENABLE_CUDA)
namespace weft::optim {
extern template class Optimizer<AdamWRule>;
extern template Slot Optimizer<AdamWRule>::make_slot<float>(ParameterState&);
extern template void update_slot<AdamWRule, float>(Device<Kokkos::DefaultHostExecutionSpace>&, Slot&, const AdamWOptions&, double,
                                                   const kernels::GradientScale&, std::uint64_t);
extern template Slot Optimizer<AdamWRule>::make_slot<bfloat16>(ParameterState&);
extern template void update_slot<AdamWRule, bfloat16>(Device<Kokkos::DefaultHostExecutionSpace>&, Slot&, const AdamWOptions&,
                                                      double, const kernels::GradientScale&, std::uint64_t);
extern template Slot Optimizer<AdamWRule>::make_slot<double>(ParameterState&);
extern template void update_slot<AdamWRule, double>(Device<Kokkos::DefaultHostExecutionSpace>&, Slot&, const AdamWOptions&,
                                                    double, const kernels::GradientScale&, std::uint64_t);
}  // namespace weft::optim
#endif
