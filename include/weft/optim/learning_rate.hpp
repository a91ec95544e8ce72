// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learning rates as pure functions of the step, so that a resumed run needs no stored state.
//
//   optim::WarmupCosine rate{.peak = 3e-4, .minimum = 3e-5, .warmup = 100, .steps = 5000};
//   optimizer.step(rate.at(step));

#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <numbers>
#include <type_traits>
#include <utility>

#include <weft/core/standard.hpp>
#include <weft/optim/trainable.hpp>

namespace weft::optim {

/// Linear warm-up from peak / warmup to peak, then half a cosine down to `minimum` at the last step (Loshchilov and Hutter, SGDR,
/// arXiv:1608.03983, without restarts). Steps count from 0.
struct WarmupCosine {
  double peak = 3e-4;
  double minimum = 0;
  std::uint64_t warmup = 0;  ///< steps
  std::uint64_t steps = 1;   ///< in the whole run, including warm-up

  /// Throws UsageError if peak or minimum is not a number of at least 0.
  double at(std::uint64_t step) const {
    require_option("peak learning rate", peak);
    require_option("minimum learning rate", minimum);
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (step + 1 >= steps) return minimum;
    const double part = static_cast<double>(step + 1 - warmup) / static_cast<double>(steps - warmup);
    return minimum + 0.5 * (peak - minimum) * (1 + std::cos(std::numbers::pi * part));
  }
};

/// Warm-up, a plateau, and a decay over the last steps of the run (WSD; Hu et al., MiniCPM, arXiv:2404.06395). A run can continue
/// from the plateau, so its length need not be fixed in advance. The decay is linear to `minimum` at the last step. Steps count
/// from 0.
struct WarmupStableDecay {
  double peak = 3e-4;
  double minimum = 0;
  std::uint64_t warmup = 0;  ///< steps
  std::uint64_t decay = 0;   ///< steps, at the end of the run
  std::uint64_t steps = 1;   ///< in the whole run, including warm-up and decay

  /// Throws UsageError if peak or minimum is not a number of at least 0.
  double at(std::uint64_t step) const {
    require_option("peak learning rate", peak);
    require_option("minimum learning rate", minimum);
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (step + 1 >= steps) return decay == 0 ? peak : minimum;
    if (step + decay < steps) return peak;
    const double part = static_cast<double>(step + 1 + decay - steps) / static_cast<double>(decay);
    return peak + (minimum - peak) * part;
  }
};

/// A learning rate, chosen at run time: any of the above, or your own function of the step.
///
///   optim::LearningRate rate = [](std::uint64_t step) { return 1e-3 / std::sqrt(1.0 + double(step)); };
class LearningRate {
 public:
  template <class Rate>
  requires(!std::is_same_v<std::remove_cvref_t<Rate>, LearningRate> && (requires(const Rate& rate) {
    { rate.at(std::uint64_t(0)) } -> std::convertible_to<double>;
  } || std::is_invocable_r_v<double, Rate&, std::uint64_t>)) LearningRate(Rate rate) {
    if constexpr (requires { rate.at(std::uint64_t(0)); })
      at_ = [rate = std::move(rate)](std::uint64_t step) { return double(rate.at(step)); };
    else at_ = std::move(rate);
  }
  /// Throws UsageError if the function returns no number of at least 0.
  double at(std::uint64_t step) const {
    const double rate = at_(step);
    require_option(weft::detail::joined({"learning rate of step ", step}), rate);
    return rate;
  }

 private:
  std::function<double(std::uint64_t)> at_;
};

}  // namespace weft::optim
