// SPDX-License-Identifier: Apache-2.0
#pragma once
// One layer in several places of a model: the first request makes it, later ones get copies that hold the same parameters. The
// places may be on different stages of a pipeline.
//
//   auto adapter = shared_layer(context / "adapter", [&](const auto& here) { return Linear<>(here, width, width); });

#include <memory>

#include <weft/context/context.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/registry.hpp>

namespace weft {

namespace detail {
template <class L>
inline constexpr char kind_of_layer = 0;
}

/// A copy of the layer that make(context) made when it was first called with this path in the model under construction. All users
/// of a layer pass the same path, so not one below `context / "blocks" / index`. Throws UsageError outside make_front, make_block
/// and make_back, and for two types of layer under one path.
template <class Context, class Make>
WEFT_COLD auto shared_layer(const Context& context, Make&& make) {
  using L = decltype(make(context));
  const detail::Construction& here = detail::construction_of(context);
  if (here.registry == nullptr)
    throw_error<UsageError>({"shared_layer ", here.path, ": there is no model that is being built; share a layer by copying it"});
  std::shared_ptr<void>& layer = here.registry->shared(here.path, &detail::kind_of_layer<L>);
  if (!layer) layer = std::make_shared<L>(make(context));
  return L(*static_cast<const L*>(layer.get()));
}

}  // namespace weft
