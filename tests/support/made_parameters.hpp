// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a layer that is made without a model, for tests that read its values and gradients. Layers have no list of
// parameters, so they are recorded at their creation.
//
//   MadeParameters made;
//   auto layer = make(made.beside(context));
//   for (ParameterState* state : made.by_name()) ...

#include <algorithm>
#include <vector>

#include <weft/context/context.hpp>
#include <weft/engine/hooks.hpp>

namespace weft_test {

class MadeParameters final : public weft::detail::Hooks {
 public:
  /// The context with this object among its hooks. The parameters made in it last as long as a layer holds them.
  template <class Context>
  Context beside(Context context) {
    context.engine.add(this);
    return context;
  }
  bool allocate(weft::ParameterState& state) override { return made_.push_back(&state), false; }

  /// All of them, in an order that does not depend on the compiler.
  std::vector<weft::ParameterState*> by_name() const {
    std::vector<weft::ParameterState*> states = made_;
    std::sort(states.begin(), states.end(), [](const auto* a, const auto* b) { return a->name() < b->name(); });
    return states;
  }

 private:
  std::vector<weft::ParameterState*> made_;
};

}  // namespace weft_test
