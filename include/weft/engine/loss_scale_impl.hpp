// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/loss_scale.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/engine/loss_scale.hpp>

namespace weft {

WEFT_INLINE LossScale::LossScale(const Options& options) : options_(options), value_(options.initial) {
  const auto is_factor = [](double x) { return std::isfinite(x) && x > 0; };
  if (!is_factor(options.initial) || !is_factor(options.growth) || !is_factor(options.backoff) || options.growth < 1 ||
      options.backoff > 1 || options.interval == 0 || !is_factor(options.smallest) || !is_factor(options.largest) ||
      !(options.smallest <= options.initial) || !(options.initial <= options.largest))
    refuse(options);
}

WEFT_INLINE void LossScale::restore(double value, std::uint64_t good_steps) {
  if (!(value >= options_.smallest && value <= options_.largest))
    throw_error<UsageError>({"loss scale: the restored factor ", std::to_string(value), " is not in [smallest(",
                             std::to_string(options_.smallest), "), largest(", std::to_string(options_.largest), ")]"});
  value_ = value;
  good_steps_ = good_steps;
}

WEFT_INLINE void LossScale::update(bool skipped) {
  if (skipped) {
    value_ = std::max(options_.smallest, value_ * options_.backoff);
    good_steps_ = 0;
  } else if (++good_steps_ >= options_.interval) {
    value_ = std::min(options_.largest, value_ * options_.growth);
    good_steps_ = 0;
  }
}

WEFT_COLD WEFT_INLINE void LossScale::refuse(const Options& options) {
  const double numbers[] = {options.smallest, options.initial, options.largest, options.growth, options.backoff};
  std::string shown[5];
  for (int i = 0; i < 5; ++i) shown[i] = std::to_string(numbers[i]);
  throw_error<UsageError>({"loss scale: smallest(", shown[0], ") <= initial(", shown[1], ") <= largest(", shown[2], "), growth(",
                           shown[3], ") >= 1, 0 < backoff(", shown[4], ") <= 1 and interval(", options.interval,
                           ") >= 1 are needed"});
}

}  // namespace weft
