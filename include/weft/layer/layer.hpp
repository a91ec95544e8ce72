// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layer concept. A layer is a pure function with its saved state in the open:
//
//   auto step = layer.forward(context, input);                                       // {output, saved}
//   auto input_gradient = layer.backward(context, std::move(step.saved), gradient);  // adds into its parameters' gradients
//   auto split = layer.backward_input(context, std::move(step.saved), gradient);     // or in two: {input_gradient, deferred}
//   layer.backward_weight(context, std::move(split.deferred));
//   layer.for_each_parameter(visit);
//
// The gradient of an input that is not Real (token ids) is Nothing{}; of any other it is one placed as the dual of the input.
//
// There is no tape. A pipeline keeps as many `saved` in flight as its schedule wants. A layer writes either `backward` or the
// two halves; these functions adapt one to the other. `saved` holds activations, never parameters.

#include <type_traits>
#include <utility>

#include <weft/tensor/tensor.hpp>

namespace weft {

/// What `forward` returns.
template <class Output, class Saved>
struct Result {
  using output_type = Output;
  using saved_type = Saved;
  Output output;
  Saved saved;
};
template <class O, class S>
Result(O, S) -> Result<O, S>;

/// What `backward_input` returns: the gradient of the input, and what the weight half still needs.
template <class Gradient, class Deferred>
struct InputGradient {
  using deferred_type = Deferred;
  Gradient input_gradient;
  Deferred deferred;
};
template <class G, class D>
InputGradient(G, D) -> InputGradient<G, D>;

namespace detail {
template <class Layer, bool takes, bool returns>
constexpr void require_backward() {
  static_assert(takes, "weft: this layer has no backward(context, saved, gradient), nor backward_input, that can be called with what its forward saved, handed over as an "
                       "rvalue: take `saved` by value or const reference, not as auto&; see Layer in this function's template arguments");
  static_assert(!takes || returns, "weft: this layer's backward returns nothing (void): return the gradient of the input, gradient_t of its type; see Layer in this function's template arguments");
}
}  // namespace detail

/// The first half of backward, of a layer that writes either form. A layer with only `backward` does all its work here.
template <class Layer, class Context, class Saved, class Gradient>
auto backward_input(Layer& layer, const Context& context, Saved&& saved, const Gradient& gradient) {
  if constexpr (requires { layer.backward_input(context, std::forward<Saved>(saved), gradient); })
    return layer.backward_input(context, std::forward<Saved>(saved), gradient);
  else if constexpr (requires { InputGradient{layer.backward(context, std::forward<Saved>(saved), gradient), Nothing{}}; })
    return InputGradient{layer.backward(context, std::forward<Saved>(saved), gradient), Nothing{}};
  else {
    constexpr bool takes = requires { layer.backward(context, std::forward<Saved>(saved), gradient); };
    detail::require_backward<Layer, takes, false>();
    return InputGradient{detail::AlreadyRefused{}, Nothing{}};
  }
}

namespace detail {
// The gradient that a layer's backward returned of its input X. One of the right type stands in for a refused one, so that there is
// one error.
template <class X, class G>
gradient_t<X> input_gradient_of(G&& gradient) {
  require_gradient_of<X, G>();
  if constexpr (std::is_same_v<std::remove_cvref_t<G>, gradient_t<X>>) return std::forward<G>(gradient);
  else return {};
}
}  // namespace detail

/// The second half.
template <class Layer, class Context, class Deferred>
void backward_weight(Layer& layer, const Context& context, Deferred&& deferred) {
  if constexpr (!std::is_same_v<std::remove_cvref_t<Deferred>, Nothing>) layer.backward_weight(context, std::forward<Deferred>(deferred));
}

/// Both halves at once.
template <class Layer, class Context, class Saved, class Gradient>
auto backward(Layer& layer, const Context& context, Saved&& saved, const Gradient& gradient) {
  auto split = weft::backward_input(layer, context, std::forward<Saved>(saved), gradient);
  weft::backward_weight(layer, context, std::move(split.deferred));
  return std::move(split.input_gradient);
}

namespace detail {

/// What `layer.forward(context, input)` returns.
template <class Layer, class Context, class Input>
using forward_t = decltype(std::declval<const Layer&>().forward(std::declval<const Context&>(), std::declval<const Input&>()));

/// A layer on inputs of type Input under Context.
template <class L, class Context, class Input>
concept Layer = requires(const L& layer, L& mutable_layer, const Context& context, const Input& input) {
  { layer.forward(context, input).output };
  { layer.forward(context, input).saved };
  mutable_layer.for_each_parameter([](auto&) {});
};

}  // namespace detail

}  // namespace weft
