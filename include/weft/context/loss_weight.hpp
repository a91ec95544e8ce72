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
#include <concepts>
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
  /// A number of the program, such as one of the model's config, with the context of the Module that keeps the weight. Throws
  /// UsageError while a step runs, and for a number that is not finite.
  template <class Context>
  requires requires(const Context& context) { context.engine.running; }
  WEFT_COLD LossWeight(const Context& context, double value) : value_(value) {
    if (context.engine.running)
      throw_error<UsageError>({"a LossWeight of ", std::to_string(value), " at ", context.env.path,
                               " is made while a step runs, so it may depend on the batch, by whose count weft divides the loss "
                               "once: make it in the Module's constructor, of a number of the config"});
    if (!std::isfinite(value)) throw_error<UsageError>({"a LossWeight at ", context.env.path, " is ", std::to_string(value)});
  }

  double value() const { return value_; }

 private:
  double value_;
};

}  // namespace weft
