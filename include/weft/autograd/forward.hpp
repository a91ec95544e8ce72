// SPDX-License-Identifier: Apache-2.0
#pragma once
// The call of a layer's forward by whoever holds layers: a wrapper, a combinator, a test. A layer with a backward of its own is
// called with the context; a Module, of which only the forward is written, records a tape (autograd/module.hpp); an operation
// without parameters saves its operands (autograd/primitive.hpp).
//
//   auto step = weft::forward(layer, context, x);   // {output, saved}

#include <tuple>
#include <type_traits>

#include <weft/autograd/proof_note.hpp>
#include <weft/autograd/result.hpp>
#include <weft/core/has_member.hpp>
#include <weft/engine/layer_error.hpp>

namespace weft {

template <class Self>
class Module;

namespace detail {

template <class Self>
const Module<Self>& as_module(const Module<Self>& module) {
  return module;
}
/// A layer of which only the forward is written.
template <class L>
concept IsModule = requires(const L& layer) {
  detail::as_module(layer);
};

namespace layer_check {
WEFT_HAS_MEMBER(gradient)
}  // namespace layer_check
/// An operation without parameters: forward(x...) and gradient(g, x...), on tensors (autograd/primitive.hpp).
template <class L>
concept IsOperation = !IsModule<L> && layer_check::has_gradient<L>();

}  // namespace detail

/// The layer's output for these inputs and the saved state for its backward, as Result{output, saved}.
template <class L, class Context, class... X>
requires(!detail::IsModule<L> && !detail::IsOperation<L> && requires(const L& layer, const Context& context, const X&... x) {
  layer.forward(context, x...);
}) auto forward(const L& layer, const Context& context, const X&... x) {
  try {
    if constexpr (detail::proves_results) {
      auto result = layer.forward(context, x...);
      if constexpr (requires { result.output; }) detail::note_result<L>(context, result.output);
      return result;
    } else {
      return layer.forward(context, x...);
    }
  } catch (...) {
    detail::add_layer(layer, detail::Pass::forward);
    throw;
  }
}
template <detail::IsOperation L, class Context, class... X>
auto forward(const L& layer, const Context&, const X&... x) {
  return Result{layer.forward(x...), std::tuple(x...)};
}
template <detail::IsModule L, class Context, class... X>
auto forward(const L& layer, const Context& context, const X&... x) {
  return detail::as_module(layer).recorded_forward(context, x...);
}

}  // namespace weft
