// SPDX-License-Identifier: Apache-2.0
#pragma once
// A learning rate that falls by a constant factor at regular distances, the schedule of most convolutional networks.
//
//   optim::WarmupStepDecay rate{.peak = 0.1, .every = 30 * steps_per_epoch};
//   optimizer.step(rate.at(step));

#include <cmath>
#include <cstdint>

#include <weft/optim/trainable.hpp>

namespace weft::optim {

/// Linear warm-up from peak / warmup to peak, then peak * factor^(step / every), rounded down: torch.optim.lr_scheduler.StepLR
/// behind a LinearLR. Steps count from 0, and those of the warm-up count towards `every`.
struct WarmupStepDecay {
  double peak = 0.1;
  double factor = 0.1;
  std::uint64_t warmup = 0;  ///< steps
  std::uint64_t every = 1;   ///< steps

  /// Throws UsageError if peak or factor is not a number of at least 0, or `every` is 0.
  double at(std::uint64_t step) const {
    require_option("peak learning rate", peak);
    require_option("factor of the learning rate", factor);
    if (every == 0) throw_error<UsageError>({"a step decay of every 0 steps: the least is 1"});
    const std::uint64_t falls = step / every;
    const double rate = peak * std::pow(factor, double(falls));
    return step < warmup ? rate * double(step + 1) / double(warmup) : rate;
  }
};

}  // namespace weft::optim
