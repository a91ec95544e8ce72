// SPDX-License-Identifier: Apache-2.0
#pragma once
// The outputs of a model's last unit other than its loss: its `predict`, or a language model's logits, as a layer whose backward
// follows. Predictions and user-written loops use them.
//
//   using Outputs = OutputsOf<Last, Context>;   // Outputs::layer_type, Outputs::with_inputs

#include <tuple>
#include <type_traits>

#include <weft/autograd/model_check.hpp>
#include <weft/autograd/module.hpp>
#include <weft/pipeline/model_types.hpp>

namespace weft::detail {

/// L's predict as a Module's forward.
template <class L>
struct PredictOf : Module<PredictOf<L>> {
  explicit PredictOf(const L& of) : layer(&of) {}
  auto forward(const auto&... x) const { return layer->predict(x...); }
  const L* layer;
};
/// A back's logits as a Module's forward.
template <class L>
struct LogitsOf : Module<LogitsOf<L>> {
  explicit LogitsOf(const L& of) : layer(&of) {}
  auto forward(const auto& x) const { return layer->logits(x); }
  const L* layer;
};
template <class L, class Context, class... X>
concept PredictsTensors = requires(const L& layer, const Context& context, const X&... x) {
  layer.predict(context, x...);
};
template <class L, class Context, class... X>
concept PredictsVariables = std::is_base_of_v<Module<L>, L> && requires(const L& layer, const variable_of_t<Context, X>&... x) {
  layer.predict(x...);
};
// True if a Module's predict takes the parts of a tuple and, if `with`, the inputs of the batch.
template <class L, class Context, class Inputs, bool with, class X>
struct PredictsParts {
  static constexpr bool value = with ? PredictsVariables<L, Context, X, Inputs> : PredictsVariables<L, Context, X>;
};
template <class L, class Context, class Inputs, bool with, class... X>
struct PredictsParts<L, Context, Inputs, with, std::tuple<X...>> {
  static constexpr bool value = with ? PredictsVariables<L, Context, X..., Inputs> : PredictsVariables<L, Context, X...>;
};
template <class L, class Context, class X>
inline constexpr bool records_logits = requires(const L& layer, const variable_of_t<Context, X>& x) {
  layer.logits(x);
};
template <class L, class Context, class... X>
inline constexpr bool records_logits<L, Context, std::tuple<X...>> = false;

/// The last unit's outputs as a layer; void if it has none that can be recorded.
template <class Last, class Context>
struct OutputsOf {
  using Layer = typename Last::Layer;
  using X = typename Last::Input;
  using Inputs = typename Last::BatchInputs::Last;
  static constexpr bool alone = PredictsParts<Layer, Context, Inputs, false, X>::value,
                        with_inputs = !alone && PredictsParts<Layer, Context, Inputs, true, X>::value,
                        logits = !alone && !with_inputs && records_logits<Layer, Context, X>;
  using layer_type =
      std::conditional_t<alone || with_inputs, PredictOf<Layer>, std::conditional_t<logits, LogitsOf<Layer>, void>>;
};

}  // namespace weft::detail
