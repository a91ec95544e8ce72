// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters for whose values a layer asks in its forward, in a model's first training step. A layer with a backward of its
// own must give each of them a gradient, and one that does not is named after the step.
//
//   AskedParameters asked(context.engine);
//   ... forward ...
//   asked.find();
//   ... backward ...
//   asked.expect();

#include <vector>

#include <weft/engine/engine_state.hpp>
#include <weft/engine/hooks.hpp>
#include <weft/engine/parameter_state.hpp>

namespace weft::detail {

class AskedParameters {
 public:
  AskedParameters() = default;
  explicit AskedParameters(const EngineState& engine) : unit_(engine.unit) {
    if (unit_ != nullptr)
      for (ParameterState* state : unit_->parameters) state->forget_asking();
  }
  /// The layer's forward has ended.
  void find() {
    if (unit_ != nullptr)
      for (ParameterState* state : unit_->parameters)
        if (state->asked()) states_.push_back(state);
    unit_ = nullptr;
  }
  /// The layer's backward runs.
  void expect() const {
    for (ParameterState* state : states_) state->gradients().expect();
  }

 private:
  const Unit* unit_ = nullptr;
  std::vector<ParameterState*> states_;
};

}  // namespace weft::detail
