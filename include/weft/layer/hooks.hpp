// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface between a model and its wrappers: parameters without their types, grouped into units (front, each block, back),
// and the moments of a step at which a wrapper may act. One virtual call per unit, never per operation.
//
//   struct Sums : Hooks { void gradients_ready(Unit& unit) override { ... } };

#include <span>
#include <string>
#include <vector>

#include <weft/layer/parameter_state.hpp>

namespace weft {

namespace detail {

class GradientAccumulator;

/// Whether the gradients of a model's last training step have been used.
struct StepGradients {
  bool applied = true;
};

/// What is gathered, released and reduced together.
struct Unit {
  std::string name;
  std::vector<ParameterState*> parameters;
  bool complete = true;  ///< at gradients_ready: no micro-batch of the step adds to these gradients any more

  bool uses(const ParameterState* state) const {
    for (const ParameterState* mine : parameters)
      if (mine == state) return true;
    return false;
  }
};

/// What a wrapper does around a step. "After" events and gradients_ready run innermost wrapper first: sums over tp are paid
/// before a bucket leaves over dp. This is a matter of correctness.
class Hooks {
 public:
  virtual ~Hooks() = default;
  /// A parameter is being made on this rank; the shapes are known. True: this wrapper allocates and fills it.
  virtual bool allocate(ParameterState&) { return false; }
  /// The model is complete; units in the order in which their gradients will become ready.
  virtual void prepare(std::span<Unit*>) {}
  /// This wrapper sums over data ranks: it comes after all others, also where those have their turn after every micro-batch.
  virtual bool sums_data() const { return false; }
  /// A training step begins: the accumulator says in which order data ranks' gradients are added in it.
  virtual void begin_sums(GradientAccumulator&) {}
  /// gradients_ready comes after every micro-batch, not only after the last one.
  virtual bool reduces_each_micro_batch() const { return false; }
  /// A step, or forward alone, begins.
  virtual void begin(bool /*training*/) {}
  virtual void before_forward(Unit&) {}
  virtual void after_forward(Unit&) {}
  virtual void before_backward(Unit&) {}
  virtual void after_backward(Unit&) {}
  /// A layer is about to add to a gradient that this wrapper keeps and that has no room yet.
  virtual void open_gradient(ParameterState&) {}
  /// The last micro-batch's weight gradients of this unit are in place.
  virtual void gradients_ready(Unit&) {}
  /// The sums over data ranks of the next step are compared with plain ones, where a user's hook makes them.
  virtual void check_sums() {}
  /// The end of what `begin` began; all gradients are in place: wait for what is under way.
  virtual void finish() {}
};

/// What was added so far is the gradient of one data rank's micro-batch; that of the next one's begins in a place of its own.
template <class Device>
void next_term(Device& device, ParameterState& state) {
  state.gradients().next_term(device.allocate(state.gradient_bytes()));
}

/// Room for the gradient that layers add to.
template <class Device>
void open_layer_gradient(Device& device, ParameterState& state) {
  if (state.gradients().layer_buffer()) return;
  if (Hooks* sharder = state.storage().sharder()) sharder->open_gradient(state);
  else state.gradients().set_buffer(device.allocate_persistent(state.gradient_bytes()));
}

}  // namespace detail

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void open_layer_gradient(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
extern template void next_term(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
}  // namespace weft::detail
#endif
