// SPDX-License-Identifier: Apache-2.0
#pragma once
// Adam (Kingma and Ba, arXiv:1412.6980) as torch.optim.Adam has it: weight decay is added to the gradient and so enters the
// moments. AdamW (optim/adamw.hpp) decays the parameters themselves.
//
//   optim::Adam optimizer(model, {.learning_rate = 1e-3, .weight_decay = 1e-4});

#include <cstdint>
#include <vector>

#include <weft/optim/adamw.hpp>

namespace weft::optim {

/// Options of Adam.
struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;                  ///< added to the gradient (L2), as in PyTorch
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                     ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

template <class A>
struct AdamElement {
  static constexpr int buffers = 2;  // the moments
  kernels::AdamwElement<A> update;
  A decay;

  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(V gradient, V& value, V* moments) const {
    update(gradient + V(decay) * value, value, moments);
  }
  bool operator==(const AdamElement&) const = default;
};

}  // namespace detail

/// The arithmetic of Adam for one element.
struct AdamRule {
  using Options = AdamOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = AdamWRule::buffers;
  static constexpr auto buffer_names = AdamWRule::buffer_names;

  static void check(const Options& options) { AdamWRule::check(adamw(options)); }

  template <class A>
  static detail::AdamElement<A> element(const ParameterState& state, const Options& options, double learning_rate,
                                        std::uint64_t step) {
    AdamWOptions moments = adamw(options);
    moments.weight_decay = 0;
    return {AdamWRule::element<A>(state, moments, learning_rate, step), A(options.weight_decay)};
  }

 private:
  static AdamWOptions adamw(const Options& options) {
    return {.beta1 = options.beta1, .beta2 = options.beta2, .epsilon = options.epsilon, .weight_decay = options.weight_decay};
  }
};

/// Adam as torch.optim.Adam has it.
using Adam = Optimizer<AdamRule>;

}  // namespace weft::optim
