// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine's part of a context: the wrappers' hooks, the model under construction and buffers that last beyond a step. Layers
// read Context::env instead.
//
//   for (Hooks* hooks : context.engine.hooks) hooks->finish();

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/engine/hooks.hpp>

namespace weft {

namespace detail {

class ChildCalls;
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
  bool running = false;       ///< a step or a forward runs: layers are used and none is constructed
  bool records = true;        ///< backward follows forward: Modules record tapes
  double loss_scale = 1;      ///< factor in every gradient (LossScale)
  /// The length of the longest sequence of the global batch, in steps of which its rows are counted; 0: that of this rank's
  /// batch.
  std::size_t longest = 0;
  ChildCalls* calls = nullptr;  ///< of a model that is a Module
  bool first_step = false;      ///< the model's first training step, after which gradients that are missing are named
  Unit* unit = nullptr;         ///< the one that runs, in the first training step
  /// The registry of the model under construction: parameters get memory once the ranks that hold them are known.
  Registry* registry = nullptr;
  /// The buffers that the layers of the model under construction keep from step to step.
  std::vector<std::shared_ptr<StepBuffer>>* buffers = nullptr;
};

}  // namespace detail

}  // namespace weft
