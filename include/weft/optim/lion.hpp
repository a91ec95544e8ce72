// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lion (Chen et al., arXiv:2302.06675, program 2): the sign of an interpolation between gradient and momentum, with decoupled
// weight decay. It keeps one buffer, half of AdamW's memory. Its learning rate is 3 to 10 times smaller than AdamW's, its weight
// decay as many times larger.
//
//   optim::Lion optimizer(model, {.learning_rate = 1e-4, .weight_decay = 0.1});

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of Lion.
struct LionOptions {
  double learning_rate = 1e-4;
  double beta1 = 0.9;   ///< of the interpolation whose sign is the update
  double beta2 = 0.99;  ///< of the momentum
  double weight_decay = 0;
  bool decay_vectors = true;                ///< false: biases and gains of norms do not decay
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                     ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

template <class A>
struct LionElement {
  static constexpr int buffers = 1;  // momentum
  A beta1, one_less_beta1, beta2, one_less_beta2, keep, rate;

  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(V gradient, V& value, V* momentum) const {
    const V direction = V(beta1) * momentum[0] + V(one_less_beta1) * gradient;
    // A number divided by its magnitude is exactly 1 or -1, and 0 divided by the smallest number is 0.
    const V sign = direction / max_of(max_of(direction, -direction), V(std::numeric_limits<A>::min()));
    value = V(keep) * value - V(rate) * sign;
    momentum[0] = V(beta2) * momentum[0] + V(one_less_beta2) * gradient;
  }
  bool operator==(const LionElement&) const = default;
};

}  // namespace detail

/// The arithmetic of Lion for one element.
struct LionRule {
  using Options = LionOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = 1;
  static constexpr std::array<std::string_view, 1> buffer_names{"exp_avg"};  // name in checkpoints, as in the authors' code

  static void check(const Options& options) {
    require_option("beta1", options.beta1, 1);
    require_option("beta2", options.beta2, 1);
    require_option("weight decay", options.weight_decay, largest_decay);
  }

  template <class A>
  static detail::LionElement<A> element(const ParameterState& state, const Options& options, double learning_rate,
                                        std::uint64_t) {
    const double decay = state.global().rank() > 1 || options.decay_vectors ? options.weight_decay : 0;
    return {A(options.beta1),     A(1 - options.beta1),         A(options.beta2),
            A(1 - options.beta2), A(1 - learning_rate * decay), A(learning_rate)};
  }
};

/// Lion (arXiv:2302.06675).
using Lion = Optimizer<LionRule>;

}  // namespace weft::optim
