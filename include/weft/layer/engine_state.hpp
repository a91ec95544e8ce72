// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine's part of a context: wrappers' hooks, the model that is being built, the run's accumulators. Layers read
// Context::env, and leave this alone.
//
//   for (Hooks* hooks : context.engine.hooks) hooks->finish();

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/layer/hooks.hpp>

namespace weft {

namespace detail {

struct StepBuffer;
class Registry;

struct EngineState {
  EngineState() = default;
  WEFT_OUT_OF_LINE EngineState(const EngineState& other) = default;
  WEFT_OUT_OF_LINE EngineState(EngineState&& other) noexcept = default;
  EngineState& operator=(EngineState&& other) noexcept = default;
  WEFT_OUT_OF_LINE ~EngineState() {}
  WEFT_OUT_OF_LINE void add(Hooks* more) { hooks.push_back(more); }

  std::vector<Hooks*> hooks;  ///< outermost wrapper first
  bool running = false;       ///< a step, or forward alone: layers are used, and none is made
  double loss_scale = 1;      ///< factor in every gradient (LossScale)
  std::size_t longest =
      0;  ///< sequence of the global batch: rows of the global batch are counted in steps of it; 0: as this rank's batch says
  Registry* registry = nullptr;  ///< of the model that is being built: parameters get their room when it is known who holds them
  std::vector<std::shared_ptr<StepBuffer>>* buffers =
      nullptr;  ///< where layers being built leave what they keep from step to step
};

}  // namespace detail

}  // namespace weft
