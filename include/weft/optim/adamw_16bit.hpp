// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW with moments in bfloat16, as DeepSeek-V3 was trained (arXiv:2412.19437, section 3.3.3): 4 bytes of state for each element
// in place of 8. Both moments of an element are the two halves of one number, so checkpoints, stages of ZeRO and offloading treat
// them as one buffer.
//
//   optim::AdamW16Bit optimizer(model, {.learning_rate = 3e-4, .clip = 1.0});

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <weft/core/scalar.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/optim/optimizer.hpp>

namespace weft::optim {

/// Options of AdamW16Bit.
struct AdamW16BitOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;  ///< the betas are at most AdamW16BitRule::largest_beta
  double weight_decay = 0.01;
  bool decay_vectors = true;                ///< as in PyTorch; false: biases and gains of norms do not decay
  double clip = 0;                          ///< maximum global gradient norm; 0: no clipping
  double ema_decay = 0;                     ///< of an average of the parameters (optim/ema.hpp), below 1; 0: none
  std::vector<ParameterGroup> groups = {};  ///< parameters with separate options
};

namespace detail {

/// Two moments as the bits of one float, each rounded to the nearest bfloat16. The first one is the upper half, so the float is
/// close to it.
KOKKOS_INLINE_FUNCTION float moment_pair(float first, float second) {
  return std::bit_cast<float>(std::uint32_t(bfloat16(first).bits) << 16 | std::uint32_t(bfloat16(second).bits));
}
KOKKOS_INLINE_FUNCTION float first_moment(float pair) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(pair) & 0xffff0000u);
}
KOKKOS_INLINE_FUNCTION float second_moment(float pair) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(pair) << 16); }

/// AdamW's arithmetic in type A on moments that were rounded after the last step. The update has this step's before they are.
template <class A>
struct PairedAdamwElement {
  static constexpr int buffers = 1;
  kernels::AdamwElement<A> adamw;

  template <class V>
  KOKKOS_FORCEINLINE_FUNCTION void operator()(V gradient, V& value, V* kept) const {
    A pairs[V::size], first[V::size], second[V::size];
    kept[0].store(pairs);
    for (std::size_t k = 0; k < V::size; ++k) {
      first[k] = A(first_moment(float(pairs[k])));
      second[k] = A(second_moment(float(pairs[k])));
    }
    V moments[2] = {V::load(first), V::load(second)};
    adamw(gradient, value, moments);
    moments[0].store(first);
    moments[1].store(second);
    for (std::size_t k = 0; k < V::size; ++k) pairs[k] = A(moment_pair(float(first[k]), float(second[k])));
    kept[0] = V::load(pairs);
  }
  bool operator==(const PairedAdamwElement&) const = default;
};

}  // namespace detail

/// Moments have the range of float, also in models of double, whose pairs take 8 bytes in place of 16.
struct AdamW16BitRule {
  using Options = AdamW16BitOptions;
  static constexpr bool elementwise = true;
  static constexpr int buffers = 1;
  static constexpr std::array<std::string_view, 1> buffer_names{"exp_avg_pair"};  // in checkpoints
  /// A number of 8 bits moves only if it changes by more than 1 / 256 to 1 / 512: with a decay of 0.98 a moment follows squares
  /// that differ from it by a fifth, with 0.999 it would never fall.
  static constexpr double largest_beta = 0.98;

  /// Throws UsageError for options out of range, and for a beta above largest_beta.
  static void check(const Options& options) {
    AdamWRule::check(detail::adamw_part(options));
    for (const double beta : {options.beta1, options.beta2})
      if (beta > largest_beta)
        throw_error<UsageError>({"beta ", std::to_string(beta),
                                 ": moments in bfloat16 do not follow slower averages than those of ",
                                 std::to_string(largest_beta), ": use smaller betas, such as 0.9 and 0.95, or AdamW"});
  }

  template <class A>
  static detail::PairedAdamwElement<A> element(const ParameterState& state, const Options& options, double learning_rate,
                                               std::uint64_t step) {
    return {AdamWRule::element<A>(state, detail::adamw_part(options), learning_rate, step)};
  }
};

/// Numerics: in every layout the bits of one rank, if the gradients have the bits of one rank; otherwise rounding of a gradient
/// can move a moment to a neighbouring number.
using AdamW16Bit = Optimizer<AdamW16BitRule>;

}  // namespace weft::optim
