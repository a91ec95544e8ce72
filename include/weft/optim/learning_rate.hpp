// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learning rates as pure functions of the step, so that a resumed run needs no stored state.
//
//   optim::WarmupCosine rate{.peak = 3e-4, .minimum = 3e-5, .warmup = 100, .steps = 5000};
//   optimizer.step(rate.at(step));

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <span>
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

/// Linear warm-up, then (1 - part)^power from peak to `minimum` at the last step, as torch.optim.lr_scheduler.PolynomialLR behind
/// a LinearLR; with power 1 a linear decay. Steps count from 0.
struct WarmupPolynomial {
  double peak = 3e-4;
  double minimum = 0;
  double power = 1;
  std::uint64_t warmup = 0;  ///< steps
  std::uint64_t steps = 1;   ///< in the whole run, including warm-up

  /// Throws UsageError if peak, minimum or power is not a number of at least 0.
  double at(std::uint64_t step) const {
    require_option("peak learning rate", peak);
    require_option("minimum learning rate", minimum);
    require_option("power of the decay", power);
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (step + 1 >= steps) return minimum;
    const double part = static_cast<double>(step + 1 - warmup) / static_cast<double>(steps - warmup);
    return minimum + (peak - minimum) * std::pow(1 - part, power);
  }
};

/// Linear warm-up, then peak * sqrt(warmup / step), which needs no length of the run (Vaswani et al., arXiv:1706.03762, section
/// 5.3). Steps count from 0.
struct WarmupInverseSquareRoot {
  double peak = 3e-4;
  std::uint64_t warmup = 1;  ///< steps, at least 1

  /// Throws UsageError if peak is not a number of at least 0, or without warm-up.
  double at(std::uint64_t step) const {
    require_option("peak learning rate", peak);
    if (warmup == 0) throw_error<UsageError>({"WarmupInverseSquareRoot needs a warm-up: its decay is measured in warm-ups"});
    const double ratio = static_cast<double>(step + 1) / static_cast<double>(warmup);
    return ratio < 1 ? peak * ratio : peak / std::sqrt(ratio);
  }
};

/// One rise and one fall, each half a cosine, as torch.optim.lr_scheduler.OneCycleLR (Smith and Topin, arXiv:1708.07120): from
/// peak / start to peak over the share `rise` of the steps, then down to peak / start / end. Steps count from 0.
struct OneCycle {
  double peak = 3e-4;
  double start = 25, end = 1e4;  ///< PyTorch's div_factor and final_div_factor
  double rise = 0.3;             ///< PyTorch's pct_start, below 1
  std::uint64_t steps = 2;       ///< in the whole run, at least 2

  /// Throws UsageError if an option is out of range.
  double at(std::uint64_t step) const {
    require_option("peak learning rate", peak);
    require_option("rise", rise, 1);
    if (!(start >= 1) || !(end >= 1) || steps < 2)
      throw_error<UsageError>({"OneCycle needs a start and an end of at least 1, and at least 2 steps"});
    const auto between = [](double from, double to, double part) {
      return to + 0.5 * (from - to) * (1 + std::cos(std::numbers::pi * part));
    };
    const double now = static_cast<double>(step), last = static_cast<double>(steps - 1),
                 top = rise * static_cast<double>(steps) - 1;
    if (now >= last) return peak / start / end;
    return now < top ? between(peak / start, peak, now / top) : between(peak, peak / start / end, (now - top) / (last - top));
  }
};

/// The factor of a learning rate that falls when the validation loss stands still, as torch.optim.lr_scheduler.ReduceLROnPlateau
/// in mode "min": a pure function of all validation losses so far, so that a resumed run needs nothing but them.
///
///   optimizer.step(1e-3 * plateau.at(losses));   // losses: std::vector<double>, one for each validation
struct Plateau {
  double factor = 0.1;
  std::size_t patience = 10;  ///< validations without progress that are tolerated
  double threshold = 1e-4;    ///< progress is a loss below best * (1 - threshold)
  std::size_t cooldown = 0;   ///< validations after a fall that count for nothing
  double minimum = 0;         ///< the smallest factor

  /// Throws UsageError if factor, threshold or minimum is not a number in [0, 1).
  double at(std::span<const double> losses) const {
    require_option("factor of the learning rate", factor, 1);
    require_option("threshold", threshold, 1);
    require_option("minimum factor", minimum, 1);
    double result = 1, best = std::numeric_limits<double>::infinity();
    std::size_t bad = 0, cooling = 0;
    for (const double loss : losses) {
      if (loss < best * (1 - threshold)) {
        best = loss;
        bad = 0;
      } else {
        ++bad;
      }
      if (cooling > 0) {
        --cooling;
        bad = 0;
      }
      if (bad > patience) {
        result = std::max(minimum, result * factor);
        cooling = cooldown;
        bad = 0;
      }
    }
    return result;
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
