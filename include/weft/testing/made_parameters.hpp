// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a layer under test, recorded at their creation: which ones the layer still holds, and which ones it visits.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <weft/layer/hooks.hpp>
#include <weft/layer/registry.hpp>
#include <weft/testing/numbers.hpp>

namespace weft::testing::detail {

/// Records every parameter that is created. Its gradient has memory from the start, so that adding to a gradient before it is
/// opened is found, and so that parameters that are still held can be told from others.
class Made final : public weft::detail::Hooks {
 public:
  explicit Made(Device& device) : device_(&device) {}
  weft::detail::Registry registry{false};  ///< refuses two dropouts under one path
  bool allocate(ParameterState& state) override {
    state.gradients().set_buffer(device_->allocate_persistent(state.gradient_bytes()));
    made_.push_back({&state, state.gradient()});
    return false;
  }
  /// The parameters that are still held.
  std::vector<ParameterState*> held() const {
    std::vector<ParameterState*> states;
    for (const One& one : made_)
      if (!one.gradient.expired()) states.push_back(one.state);
    return states;
  }

 private:
  struct One {
    ParameterState* state;
    std::weak_ptr<void> gradient;
  };
  Device* device_;
  std::vector<One> made_;
};

/// The parameters that the layer visits, each once. Throws if it holds others, or two of one name.
template <class Layer>
std::vector<ParameterState*> parameters_of(Layer& layer, const Made& made) {
  std::vector<ParameterState*> visited;
  layer.for_each_parameter([&](auto& parameter) {
    ParameterState* state = &parameter.state();
    if (std::find(visited.begin(), visited.end(), state) == visited.end()) visited.push_back(state);
  });
  for (const ParameterState* state : made.held())
    if (std::find(visited.begin(), visited.end(), state) == visited.end())
      refuse("for_each_parameter does not visit " + state->name() +
             ", which the layer holds: no wrapper would sum its gradient and no optimizer change it; add visit(member)");
  for (std::size_t i = 0; i < visited.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (visited[i]->name() == visited[j]->name())
        refuse("two parameters of this layer are called " + visited[i]->name() +
               ": they start alike, and one name is one parameter in checkpoints and between stages; give each a path of its own "
               "(context / \"first\")");
  return visited;
}

}  // namespace weft::testing::detail
