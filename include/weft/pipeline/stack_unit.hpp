// SPDX-License-Identifier: Apache-2.0
#pragma once
// A unit of a model as the executor sees it: forward and the halves of backward of one layer, over type-erased values. The
// executor is therefore compiled once for all models, and a model may have units of any types (pipeline/typed_unit.hpp).
//
//   unit.forward(call, inputs, hidden, hidden, saved);
//   unit.backward(call, hidden, saved, deferred);      // hidden: the gradient of the output, then of the input

#include <cstddef>

#include <weft/context/context.hpp>
#include <weft/pipeline/any_value.hpp>
#include <weft/pipeline/transport.hpp>

namespace weft::detail {

class Tape;

/// The arguments of a unit's functions that are the same for all units. The types of `context` and `inputs` are those with which
/// the model was built.
struct UnitCall {
  const void* context = nullptr;
  const void* inputs = nullptr;
  Environment* env = nullptr;
  std::size_t micro = 0, samples = 0;  ///< of the micro-batch
  bool input_gradient = true;          ///< false: no unit before this one is trained, so its input is a constant
};

/// The transports of the values that enter and leave a unit and of their gradients; null without a pipeline.
template <class Exec>
struct UnitTransports {
  const Transport<Exec>*input = nullptr, *output = nullptr, *input_gradient = nullptr, *output_gradient = nullptr;
};

template <class Exec>
class StackUnit {
 public:
  StackUnit() = default;
  StackUnit(const StackUnit&) = delete;
  StackUnit& operator=(const StackUnit&) = delete;
  virtual ~StackUnit() = default;

  /// The inputs of the batch that the unit takes; empty if it takes none. The executor keeps them while the unit runs.
  virtual AnyValue inputs(const UnitCall& call) const = 0;
  /// `hidden` is the previous unit's output. `output` (may be the same object) receives this unit's output; for the last unit it
  /// is the sum of the loss, a Tensor<double, Exec>. `saved`: null if no backward follows.
  virtual void forward(const UnitCall& call, AnyValue& inputs, AnyValue& hidden, AnyValue& output, AnyValue* saved) const = 0;
  /// `gradient` is the output's gradient on entry and the input's on return. If `deferred` is null, the weight half runs at once;
  /// else `deferred` receives the values that it needs.
  virtual void backward(const UnitCall& call, AnyValue& gradient, AnyValue& saved, AnyValue* deferred) = 0;
  virtual void backward_weight(const UnitCall& call, AnyValue& deferred) = 0;
  /// The tape of saved values; null for a layer with a hand-written backward, whose `saved` may be empty here.
  virtual const Tape* tape(const AnyValue& saved) const = 0;
  virtual bool has_tape() const = 0;
  virtual UnitTransports<Exec> transports() const = 0;
  /// Throws UsageError unless the loss is a sum over samples; see require_loss_is_a_sum. For the last unit only.
  virtual bool require_sum(const UnitCall& call, AnyValue& hidden) const = 0;
};

}  // namespace weft::detail
