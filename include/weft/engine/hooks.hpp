// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface between a model and its wrappers: parameters without their types, grouped into units (front, each block, back),
// and the events of a step at which a wrapper may act. One virtual call for a unit, never for an operation.
//
//   struct Sums : Hooks { void gradients_ready(Unit& unit) override { ... } };

#include <span>
#include <string>
#include <vector>

#include <weft/engine/parameter_state.hpp>
#include <weft/kernels/elementwise.hpp>

namespace weft {

namespace hook {
class Keeper;  // engine/hook/keeper.hpp
}

namespace detail {

class GradientAccumulator;

/// The parameters that are gathered, released and reduced together.
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

/// The events of a step, for a wrapper to override. "After" events and gradients_ready run innermost wrapper first, which
/// correctness needs: gradients are reduced over tp before a bucket is sent over dp.
class Hooks {
 public:
  virtual ~Hooks() = default;
  /// A parameter is created on this rank; its shapes are known. True: this wrapper allocates and fills it.
  virtual bool allocate(ParameterState&) { return false; }
  /// The model is complete; units in the order in which their gradients will become ready.
  virtual void prepare(std::span<Unit*>) {}
  /// Other parameters than before are trainable: memory for gradients is laid out anew.
  virtual void lay_out_gradients() {}
  /// Whether this wrapper sums over data ranks: it then runs after all others, even if those run after every micro-batch.
  virtual bool sums_data() const { return false; }
  /// Whether the children of a model that is one Module are units of their own: it gathers parameters before they are used.
  virtual bool gathers_children() const { return false; }
  /// A training step begins: the accumulator gives the order in which data ranks' gradients are added.
  virtual void begin_sums(GradientAccumulator&) {}
  /// Whether gradients_ready is called after every micro-batch, not only after the last one.
  virtual bool reduces_each_micro_batch() const { return false; }
  /// Whether data ranks communicate in every micro-batch, so that all must have the same number of them.
  virtual bool meets_each_micro_batch() const { return reduces_each_micro_batch(); }
  /// A step or a forward begins.
  virtual void begin(bool /*training*/) {}
  virtual void before_forward(Unit&) {}
  virtual void after_forward(Unit&) {}
  virtual void before_backward(Unit&) {}
  virtual void after_backward(Unit&) {}
  /// A layer is about to add to a gradient of this wrapper that is not allocated yet.
  virtual void open_gradient(ParameterState&) {}
  /// The gradients that were added to this unit are not used, and are not summed: a micro-batch was computed again to be
  /// compared.
  virtual void discard_gradients(Unit&) {}
  /// The last micro-batch's weight gradients of this unit are complete.
  virtual void gradients_ready(Unit&) {}
  /// Compares the next step's sums over data ranks with plain ones, if a user's hook computes them.
  virtual void check_sums() {}
  /// Names the state that a user's hook keeps from step to step, for checkpoints.
  virtual void keep(hook::Keeper&) {}
  /// The end of a step or forward; all gradients are complete: wait for pending communication.
  virtual void finish() {}
};

/// The sum so far is the gradient of one data rank's micro-batch; the next rank's is added in a new buffer.
template <class Device>
void next_term(Device& device, ParameterState& state) {
  if (state.trainable()) state.gradients().next_term(device.allocate(state.gradient_bytes()));
}

/// Allocates the gradient that layers add to, if it is not allocated yet.
template <class Device>
void open_layer_gradient(Device& device, ParameterState& state) {
  if (state.gradients().layer_buffer()) return;
  if (Hooks* sharder = state.storage().sharder()) sharder->open_gradient(state);
  else state.gradients().set_buffer(device.allocate_persistent(state.gradient_bytes(), MemoryCategory::gradients));
}

// Gradients are never narrower than float.
template <class Device>
void fill_gradient(Device& device, ParameterState& state) {
  void* gradient = state.gradients().layer_buffer().get();
  if (state.gradient_type() == DataType::float32) kernels::fill(device, state.size(), static_cast<float*>(gradient), 0.0f);
  else kernels::fill(device, state.size(), static_cast<double*>(gradient), 0.0);
}

template <class Device>
void zero_gradient(Device& device, ParameterState& state) {
  open_layer_gradient(device, state);
  fill_gradient(device, state);
  state.gradients().fill_zero();
}

}  // namespace detail

}  // namespace weft

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void open_layer_gradient(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
extern template void zero_gradient(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
extern template void next_term(Device<Kokkos::DefaultHostExecutionSpace>&, ParameterState&);
}  // namespace weft::detail
#endif
