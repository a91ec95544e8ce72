// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stochastic gradient descent with momentum, with PyTorch's formula: b = momentum b + g, p -= learning_rate b.
//
//   optim::Sgd optimizer(model, {.learning_rate = 0.1, .momentum = 0.9});

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/kernels/optimizer.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of Sgd.
struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;  ///< added to the gradient (L2), as in PyTorch
  bool nesterov = false;
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                     ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

/// The arithmetic of Sgd for one element.
struct SgdRule {
  using Options = SgdOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = 1;                                                  // momentum
  static constexpr std::array<std::string_view, 1> buffer_names{"momentum_buffer"};  // names in checkpoints, as in PyTorch

  static void check(const Options& options) {
    require_option("momentum", options.momentum, 1);
    require_option("weight decay", options.weight_decay, largest_decay);
  }

  template <class A>
  static kernels::SgdElement<A> element(const ParameterState&, const Options& options, double learning_rate, std::uint64_t) {
    return kernels::SgdElement<A>({.learning_rate = learning_rate,
                                   .momentum = options.momentum,
                                   .weight_decay = options.weight_decay,
                                   .nesterov = options.nesterov});
  }
};

/// SGD with momentum as torch.optim.SGD has it.
using Sgd = Optimizer<SgdRule>;

}  // namespace weft::optim

#if defined(WEFT_COMPILED) && !defined(KOKKOS_ENABLE_CUDA)
namespace weft::optim {
extern template class Optimizer<SgdRule>;
extern template Slot Optimizer<SgdRule>::make_slot<float>(ParameterState&);
extern template Slot Optimizer<SgdRule>::make_slot<double>(ParameterState&);
}  // namespace weft::optim
#endif
