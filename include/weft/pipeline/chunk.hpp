// SPDX-License-Identifier: Apache-2.0
#pragma once
// One contiguous range of a model's units. A pipeline's rank holds one or several chunks. Every rank builds all units, without
// memory for the values of their parameters, and keeps those of its chunks.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <weft/engine/child_calls.hpp>
#include <weft/engine/registry.hpp>
#include <weft/engine/step_buffer.hpp>
#include <weft/pipeline/agreed_shapes.hpp>
#include <weft/pipeline/stack_unit.hpp>

namespace weft::detail {

/// The parts of a unit's backward that the trainable parameters require. Computed for the whole model, so it is the same on every
/// rank.
struct UnitBackward {
  bool runs = true;   ///< the unit, or one before it, uses a trainable parameter
  bool input = true;  ///< a unit before it does: the gradient of its input is needed
};

template <class Exec>
struct Chunk {
  int stage = 0;
  bool first = false, last = false;  ///< true if the chunk holds the model's first unit, and its last
  std::vector<std::unique_ptr<StackUnit<Exec>>> layers;
  std::vector<Unit> units;    ///< every parameter that each layer uses
  std::vector<Unit> owned;    ///< the same, each parameter in the first unit that uses it: its gradient is ready with that unit
  std::vector<Unit> trained;  ///< the trainable parameters of `owned`
  std::vector<UnitBackward> backwards;  ///< by unit
  std::vector<char> on_host;            ///< by unit: ModelOptions::activations
  /// Set if the model is a Module. `owned` and `trained` are then its parts, if a wrapper gathers them one by one.
  std::unique_ptr<ChildCalls> calls;
  AgreedShapes agreed;  ///< in the rank's first chunk: the shapes of the messages of all its chunks

  /// A micro-batch has passed a unit backward, `last`: the step's last one. The accumulator sums the gradients that are complete.
  void ready(std::size_t unit, GradientAccumulator& accumulator, std::span<Hooks* const> hooks, bool last) {
    if (calls && calls->splits()) calls->ready(accumulator, hooks, last);
    else accumulator.ready(trained[unit], hooks, last);
  }
  /// True if this chunk sends gradients to the chunk before it, and if it receives them.
  bool sends_gradients() const { return backwards.front().input; }
  bool receives_gradients() const { return backwards.back().runs; }
};

/// All units of a model under construction.
template <class Exec>
struct WholeModel {
  /// One unit, and the parameters that it uses.
  struct Built {
    std::string name;
    std::unique_ptr<StackUnit<Exec>> layer;
    std::vector<ParameterState*> used;
    std::vector<std::shared_ptr<StepBuffer>> buffers;  // the values that its layers keep from step to step
    double cost = 0;                                   // cost reported by the layer; 0 if none
  };
  std::vector<Built> units;
  std::vector<std::size_t> entries;  // of a stack: the units of each of its arguments
  std::vector<Registered> parameters;
  std::uint64_t print = 0;  // a hash of the whole model
  std::string draws;        // the layer that draws random numbers, the first of them by path; empty: none
};

}  // namespace weft::detail
