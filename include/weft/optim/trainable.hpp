// SPDX-License-Identifier: Apache-2.0
#pragma once
// The models that an optimizer can update, and the limits of options: for optimizers and for your own rules.
//
//   template <optim::Trainable M> void train(M& model);   // a wrapper, or SingleDevice<Model>

#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <type_traits>

#include <weft/core/error.hpp>
#include <weft/core/text.hpp>

namespace weft::optim {

namespace detail {
[[noreturn]] WEFT_COLD inline void refuse_second(std::string_view parameter) {
  throw_error<UsageError>(
      {"a second optimizer of ", parameter,
       ": another one updates it already, and both would apply the same gradients; end that one first "
       "(std::optional<optim::AdamW>::emplace), or freeze what the other one trains while you make this one"});
}
}  // namespace detail

/// Limits of options: updates are computed in float, and a decay or a scale of a million is a typing error.
inline constexpr double largest_rate = std::numeric_limits<float>::max(), largest_decay = 1e6;

/// Throws UsageError for an option that is not in [0, end); NaN never is.
WEFT_COLD inline void require_option(std::string_view name, double value, double end = largest_rate) {
  if (value >= 0 && value < end) return;
  char shown[64], below[32] = "";
  std::snprintf(shown, sizeof shown, std::abs(value) < 1e9 ? "%f" : "%g", value);
  if (end < largest_rate) std::snprintf(below, sizeof below, " and below %g", end);
  throw_error<UsageError>({name, " ", shown, " is not a number of at least 0", below});
}

/// A model that an optimizer can update: in a wrapper, or SingleDevice<Model>. A model type by itself is only a set of factories.
template <class M>
concept Trainable = !std::is_const_v<M> && requires(M & model) {
  typename M::model_type;
  model.communicator();
  model.device();
};

namespace detail {
struct NoNumber {};
struct GivenNumber {
  GivenNumber(double) {}
};
/// Other frameworks' names of options, which are refused. Only such names select this type, since `lr` has no default.
struct OptionsElsewhere {
  NoNumber no_position = {};
  GivenNumber lr;
  double momentum = 0, dampening = 0;
  std::initializer_list<double> betas = {};
  double eps = 0, weight_decay = 0;
  bool nesterov = false;
  double clip = 0;
};
}  // namespace detail

}  // namespace weft::optim
