// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a layer under test, recorded at their creation.

#include <memory>
#include <vector>

#include <weft/engine/hooks.hpp>
#include <weft/engine/registry.hpp>
#include <weft/testing/numbers.hpp>

namespace weft::testing::detail {

/// Records every parameter that is created. Its gradient has memory from the start. So an addition to an unopened gradient is
/// found, and parameters that are still held can be distinguished from others.
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

/// The parameters that the layer holds. Throws if two have the same name.
inline std::vector<ParameterState*> parameters_of(const Made& made) {
  const std::vector<ParameterState*> held = made.held();
  for (std::size_t i = 0; i < held.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (held[i]->name() == held[j]->name())
        refuse("two parameters of this layer are called " + held[i]->name() +
               ": they start alike, and one name is one parameter in checkpoints and between stages; give each its own path "
               "(context / \"first\")");
  return held;
}

}  // namespace weft::testing::detail
