// SPDX-License-Identifier: Apache-2.0
#pragma once
// The call of a layer's forward by whoever holds layers: a wrapper, a combinator, a test. A layer with a backward of its own is
// called with the context; a Module, of which only the forward is written, records a tape (layer/module.hpp).
//
//   auto step = weft::forward(layer, context, x);   // {output, saved}

#include <type_traits>

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

}  // namespace detail

/// The layer's output for these inputs and what its backward needs, as Result{output, saved}.
template <class L, class Context, class... X>
requires(!detail::IsModule<L> && requires(const L& layer, const Context& context, const X&... x) {
  layer.forward(context, x...);
}) auto forward(const L& layer, const Context& context, const X&... x) {
  return layer.forward(context, x...);
}
template <detail::IsModule L, class Context, class... X>
auto forward(const L& layer, const Context& context, const X&... x) {
  return detail::as_module(layer).recorded_forward(context, x...);
}

}  // namespace weft
