// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weight of a loss beside another one. A loss is a sum that weft divides once, so it is multiplied by constants of the
// program and of the model's config, and by no number that a forward computes: that could be the count of a batch.
//
//   auto loss(const auto& b) const { return mse(forward(b[x]), b[y]) + 0.1 * penalty(b); }   // a constant expression
//
//   LossWeight alpha;                                                                         // a number of the config
//   Net(const auto& context, const Config& config) : alpha(context, config.alpha) {}
//   auto loss(const auto& b) const { return alpha * mse(forward(b[x]), b[y]); }

#include <cmath>
#include <string>
#include <type_traits>

#include <weft/context/context.hpp>
#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace weft {

/// A factor of losses: `0.5 * loss`, or a member of a Module, made in its constructor.
class LossWeight {
 public:
  /// A constant expression. A double that is computed while the program runs does not convert.
  template <class T>
  requires std::is_arithmetic_v<T>
  consteval LossWeight(T constant) : value_(double(constant)) {}
  /// A number of the program, such as one of the model's config, with the context of the constructor of the Module that keeps the
  /// weight. Throws UsageError for a number that is not finite.
  template <class C, class... B>
  WEFT_COLD LossWeight(const Context<C, B...>& context, double value) : value_(value) {
    if (!std::isfinite(value))
      throw_error<UsageError>({"a LossWeight at ", context.construction.path, " is ", std::to_string(value)});
  }
  template <class C, class... B>
  LossWeight(const StepContext<C, B...>&, double) : value_(0) {
    static_assert(sizeof...(B) > 99,
                  "weft: a LossWeight is made while a step runs, so it may depend on the batch, by whose count weft divides the "
                  "loss once: make it in the Module's constructor, of a number of the config");
  }

  double value() const { return value_; }

 private:
  double value_;
};

}  // namespace weft
