// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learning rates as pure functions of the step, so that a resumed run needs no stored state.
//
//   optim::WarmupCosine rate{.peak = 3e-4, .minimum = 3e-5, .warmup = 100, .steps = 5000};
//   optimizer.step(rate.at(step));

#include <cmath>
#include <cstdint>
#include <numbers>

#include <weft/core/standard.hpp>

namespace weft::optim {

/// Linear warm-up from peak / warmup to peak, then half a cosine down to `minimum` at the last step (Loshchilov and Hutter, SGDR,
/// arXiv:1608.03983, without restarts). Steps count from 0.
struct WarmupCosine {
  double peak = 3e-4;
  double minimum = 0;
  std::uint64_t warmup = 0;  ///< steps
  std::uint64_t steps = 1;   ///< of the whole run, warm-up included

  double at(std::uint64_t step) const {
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (step + 1 >= steps) return minimum;
    const double part = static_cast<double>(step + 1 - warmup) / static_cast<double>(steps - warmup);
    return minimum + 0.5 * (peak - minimum) * (1 + std::cos(std::numbers::pi * part));
  }
};

}  // namespace weft::optim
