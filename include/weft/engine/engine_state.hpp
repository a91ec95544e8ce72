// SPDX-License-Identifier: Apache-2.0
#pragma once
// The engine's part of a context: the wrappers' hooks and the state of a step. Layers read StepContext::env instead. In the
// context of a layer's constructor it also has the model under construction.
//
//   for (Hooks* hooks : context.engine.hooks) hooks->finish();

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <weft/core/text.hpp>
#include <weft/engine/hooks.hpp>

namespace weft {

struct LoraOptions;

namespace detail {

class ChildCalls;
struct StepBuffer;
class Registry;

/// The model under construction and a layer's place in it.
struct Construction {
  std::string path;                   ///< of the layer being built
  const LoraOptions* lora = nullptr;  ///< ModelOptions::lora; null: no adapters
  /// Parameters get memory once the ranks that hold them are known; null: at once.
  Registry* registry = nullptr;
  /// The buffers that the layers keep from step to step.
  std::vector<std::shared_ptr<StepBuffer>>* buffers = nullptr;
};

struct EngineState {
  EngineState() = default;
  WEFT_OUT_OF_LINE EngineState(const EngineState& other) = default;
  WEFT_OUT_OF_LINE EngineState(EngineState&& other) noexcept = default;
  EngineState& operator=(EngineState&& other) noexcept = default;
  WEFT_OUT_OF_LINE ~EngineState() {}
  WEFT_OUT_OF_LINE void add(Hooks* more) { hooks.push_back(more); }

  std::vector<Hooks*> hooks;  ///< outermost wrapper first
  bool records = true;        ///< backward follows forward: Modules record tapes
  double loss_scale = 1;      ///< factor in every gradient (LossScale)
  /// The length of the longest sequence of the global batch, in steps of which its rows are counted; 0: that of this rank's
  /// batch.
  std::size_t longest = 0;
  std::size_t piece_bytes = 0;  ///< TensorOptions::piece_bytes
  std::size_t loss_chunks = 1;  ///< LossOptions::chunks
  ChildCalls* calls = nullptr;  ///< of a model that is a Module
  bool first_step = false;      ///< the model's first training step, after which gradients that are missing are named
  Unit* unit = nullptr;         ///< the one that runs, in the first training step
};

}  // namespace detail

}  // namespace weft
