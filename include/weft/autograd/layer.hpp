// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layer concept. A layer is a pure function whose saved state is a value that the caller keeps:
//
//   auto step = layer.forward(context, input);                                       // {output, saved}
//   auto input_gradient = layer.backward(context, std::move(step.saved), gradient);  // adds into its parameters' gradients
//   auto split = layer.backward_input(context, std::move(step.saved), gradient);     // or in two: {input_gradient, deferred}
//   layer.backward_weight(context, std::move(split.deferred));
//
// The gradient of an input that is not Real (token ids) is Nothing{}; that of any other input is placed as its dual.
//
// A pipeline keeps as many `saved` in flight as its schedule needs. A layer writes either `backward` or the two halves, and these
// functions adapt one to the other; a Module writes neither (autograd/module.hpp). `saved` holds activations, never parameters.

#include <type_traits>
#include <utility>

#include <weft/autograd/layer_check.hpp>
#include <weft/autograd/result.hpp>
#include <weft/engine/layer_error.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft {

namespace detail {
template <class G>
inline constexpr bool is_split = false;
template <class G, class D>
inline constexpr bool is_split<InputGradient<G, D>> = true;
// A layer with `backward` and without the two halves.
template <class L, class Context, class Saved, class G>
concept WholeBackward = requires(L& layer, const Context& context, Saved&& saved, const G& g) {
  requires !is_split<decltype(InputGradient{layer.backward(context, std::forward<Saved>(saved), g), Nothing{}}.input_gradient)>;
}
&&!requires(L & layer, const Context& context, Saved&& saved, const G& g) {
  layer.backward_input(context, std::forward<Saved>(saved), g);
};
}  // namespace detail

/// The first half of backward, for a layer of either form. A layer with only `backward` does all its work here.
template <class Layer, class Context, class Saved, class Gradient>
auto backward_input(Layer& layer, const Context& context, Saved&& saved, const Gradient& gradient) {
  if constexpr (requires {
                  typename decltype(layer.backward_input(context, std::forward<Saved>(saved), gradient))::deferred_type;
                }) {
    try {
      auto split = layer.backward_input(context, std::forward<Saved>(saved), gradient);
      detail::note_result<Layer>(context, split.input_gradient);
      return split;
    } catch (...) {
      detail::add_layer(layer, detail::Pass::backward);
      throw;
    }
  } else if constexpr (detail::WholeBackward<Layer, Context, Saved, Gradient>) {
    try {
      auto split = InputGradient{layer.backward(context, std::forward<Saved>(saved), gradient), Nothing{}};
      detail::note_result<Layer>(context, split.input_gradient);
      return split;
    } catch (...) {
      detail::add_layer(layer, detail::Pass::backward);
      throw;
    }
  } else {
    detail::refuse_backward<Layer, Context, Saved, Gradient>();
    return InputGradient{detail::AlreadyRefused{}, Nothing{}};
  }
}

/// The same with `others`, the gradient of the input's other uses, which the layer adds; empty: there are none.
template <class Layer, class Context, class Saved, class Gradient, class Others>
auto backward_input(Layer& layer, const Context& context, Saved&& saved, const Gradient& gradient, const Others& others) {
  try {
    return layer.backward_input(context, std::forward<Saved>(saved), gradient, others);
  } catch (...) {
    detail::add_layer(layer, detail::Pass::backward);
    throw;
  }
}

namespace detail {
// The gradient of a layer's input X as its backward returned it. If it was refused, an empty one of the right type replaces it,
// so that there is one error.
template <class X, class G>
gradient_t<X> input_gradient_of(G&& gradient) {
  require_gradient_of<X, G>();
  if constexpr (std::is_same_v<std::remove_cvref_t<G>, gradient_t<X>>) return std::forward<G>(gradient);
  else return {};
}
}  // namespace detail

/// The second half of backward: adds to the parameters' gradients.
template <class Layer, class Context, class Deferred>
void backward_weight(Layer& layer, const Context& context, Deferred&& deferred) {
  if constexpr (std::is_same_v<std::remove_cvref_t<Deferred>, Nothing>) return;
  else if constexpr (requires { layer.backward_weight(context, std::forward<Deferred>(deferred)); }) try {
      layer.backward_weight(context, std::forward<Deferred>(deferred));
    } catch (...) {
      detail::add_layer(layer, detail::Pass::backward);
      throw;
    }
  else detail::refuse_backward_weight<Layer, Context, Deferred>();
}

/// Both halves at once.
template <class Layer, class Context, class Saved, class Gradient>
auto backward(Layer& layer, const Context& context, Saved&& saved, const Gradient& gradient) {
  auto split = weft::backward_input(layer, context, std::forward<Saved>(saved), gradient);
  weft::backward_weight(layer, context, std::move(split.deferred));
  return std::move(split.input_gradient);
}

namespace detail {

/// The type that L's forward returns, or RefusedResult after the error for a type that is no Result.
template <class L, class Context, class... X>
struct ForwardOf {
  using type = decltype(refuse_forward<L, Context, X...>());
};
template <class L, class Context, class... X>
requires Forwards<L, Context, X...>
struct ForwardOf<L, Context, X...> {
  using type = forward_t<L, Context, X...>;
};
template <class L, class Context, class... X>
using forward_of_t = typename ForwardOf<L, Context, X...>::type;

/// A layer on inputs of types Input under Context.
template <class L, class Context, class... Input>
concept Layer = Forwards<L, Context, Input...>;

}  // namespace detail

}  // namespace weft
