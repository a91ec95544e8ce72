// SPDX-License-Identifier: Apache-2.0
#pragma once
// The models that an optimizer can update, and the options that one accepts: for optimizers and for rules of one's own.
//
//   template <optim::Trainable M> void train(M& model);   // a wrapper, or SingleDevice<Model>

#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace weft::optim {

/// Throws UsageError for an option that is not in [0, end).
WEFT_COLD inline void require_option(std::string_view name, double value, double end = std::numeric_limits<double>::infinity()) {
  if (value >= 0 && value < end) return;
  throw_error<UsageError>({name, " ", std::to_string(value), " is not a number of at least 0", end == 1 ? " and below 1" : ""});
}

/// A model that an optimizer can update: in a wrapper, or SingleDevice<Model>. A model type alone is only a set of factories.
template <class M>
concept Trainable = !std::is_const_v<M> && requires(M & model) {
  typename M::model_type;
  model.communicator();
  model.device();
};

}  // namespace weft::optim
