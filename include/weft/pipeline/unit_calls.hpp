// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls of a model of several units in user-written loops: its forward up to the outputs of its last unit, and its loss. Both run
// the units of a training step with the same events around them, and wait for their backward.
//
//   auto call = model.forward(batch);   // call.output(): the last unit's predictions, or logits
//   auto loss = model.loss(batch);      // loss.value(), loss.backward()

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/device/rehearsal_trace.hpp>
#include <weft/engine/gradient_accumulator.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/loss_axes.hpp>
#include <weft/pipeline/loss_check.hpp>
#include <weft/pipeline/model_types.hpp>
#include <weft/pipeline/stack_unit.hpp>
#include <weft/pipeline/step_batch.hpp>
#include <weft/pipeline/typed_unit.hpp>
#include <weft/pipeline/unit_outputs.hpp>
#include <weft/tensor/transfer.hpp>

namespace weft::detail {

/// One run of a model's units, all of which are on this rank.
template <class Exec>
class UnitRun {
 public:
  UnitRun(Chunk<Exec>& chunk, GradientAccumulator& accumulator, EngineState& engine, const UnitCall& call)
      : chunk_(&chunk), accumulator_(&accumulator), engine_(&engine), call_(call), saved_(chunk.layers.size()) {}

  const UnitCall& call() const { return call_; }
  std::size_t units() const { return saved_.size(); }
  Chunk<Exec>& chunk() { return *chunk_; }

  /// Runs a unit; `f` replaces its layer's forward.
  template <class F>
  void forward(std::size_t unit, const F& f) {
    engine_->records = chunk_->backwards[unit].runs;
    call_.input_gradient = chunk_->backwards[unit].input;
    enter_unit(*engine_, chunk_->units[unit], false);
    f();
    leave_unit(*engine_, chunk_->units[unit], false);
    engine_->records = true;
  }
  void forward(std::size_t unit, AnyValue& hidden, AnyValue& output) {
    AnyValue inputs = chunk_->layers[unit]->inputs(call_);
    forward(unit, [&] {
      chunk_->layers[unit]->forward(call_, inputs, hidden, output, chunk_->backwards[unit].runs ? &saved_[unit] : nullptr);
    });
  }
  template <class F>
  void backward(std::size_t unit, const F& f) {
    if (!chunk_->backwards[unit].runs) return;
    enter_unit(*engine_, chunk_->units[unit], true);
    if (engine_->calls != nullptr) engine_->calls->reduce_early(*accumulator_, false);
    accumulator_->open(chunk_->units[unit], call_.micro);
    f();
    accumulator_->leave(chunk_->units[unit], call_.micro);
    leave_unit(*engine_, chunk_->units[unit], true);
    chunk_->ready(unit, *accumulator_, engine_->hooks, false);  // further backwards may add to the same micro-batch
  }
  void backward(std::size_t unit, AnyValue& gradient) {
    backward(unit, [&] { chunk_->layers[unit]->backward(call_, gradient, saved_[unit], nullptr); });
  }

 private:
  Chunk<Exec>* chunk_;
  GradientAccumulator* accumulator_;
  EngineState* engine_;
  UnitCall call_;
  std::vector<AnyValue> saved_;
};

/// The batch of a call, whose context tapes point to, and the run of its units.
struct OpenCall {
  OpenCall(std::unique_ptr<StepBatch> of, Chunk<StepBatch::Exec>& chunk, GradientAccumulator& accumulator, std::size_t micro)
      : batch(std::move(of)),
        run(chunk, accumulator, batch->engine(),
            {batch->context(), batch->inputs(), &batch->env(), micro, batch->share().micro_batch(micro).sequences}) {}
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;
  /// Traces a forward or backward in a rehearsal.
  TracedAction action(char operation) const { return {batch->device().trace(), operation, run.call().micro}; }
  std::unique_ptr<StepBatch> batch;
  UnitRun<StepBatch::Exec> run;
};

/// A forward of a model of several units, waiting for its backward.
template <class Model, class Context>
class StackCall {
  using Types = ModelTypes<Model, Context>;
  using Last = typename Types::Last;
  using Hidden = typename Last::Input;
  using Outputs = OutputsOf<Last, Context>;
  using Layer = typename Outputs::layer_type;
  static constexpr bool predicts = !std::is_void_v<Layer>;
  static auto outcome() {
    if constexpr (!predicts) return std::type_identity<Result<Hidden, Nothing>>();
    else if constexpr (Outputs::with_inputs)
      return std::type_identity<forward_of_t<Layer, Context, Hidden, typename Outputs::Inputs>>();
    else return std::type_identity<forward_of_t<Layer, Context, Hidden>>();
  }
  using Outcome = typename decltype(outcome())::type;

 public:
  using Output = typename Outcome::output_type;

  explicit StackCall(std::unique_ptr<OpenCall> open) : open_(std::move(open)) {
    const TracedAction action = open_->action('F');
    AnyValue hidden;
    const std::size_t last = open_->run.units() - 1;
    for (std::size_t unit = 0; unit < last; ++unit) open_->run.forward(unit, hidden, hidden);
    if constexpr (predicts) {
      layer_ = std::make_unique<Layer>(layer_of<Last, Context>(*open_->run.chunk().layers[last]));
      open_->run.forward(last, [&] {
        auto result = [&] {
          const bool wanted = open_->run.call().input_gradient;
          if constexpr (Outputs::with_inputs)
            return as_module(*layer_).recorded_call(wanted, context(), hidden.template as<Hidden>(), inputs().last(micro()));
          else return as_module(*layer_).recorded_call(wanted, context(), hidden.template as<Hidden>());
        }();
        output_ = std::move(result.output);
        saved_ = std::make_unique<typename Outcome::saved_type>(std::move(result.saved));
      });
    } else {
      output_ = std::move(hidden.template as<Hidden>());
    }
    waits_ = true;
  }

  /// The last unit's predict, or its logits; of a last unit without either the value that enters it.
  const Output& output() const { return output_; }

  /// Adds the gradients of the parameters, given that of the output. Collective over the axes that cut the model. Throws
  /// UsageError if it is called twice.
  void backward(const gradient_t<Output>& gradient) {
    if (!std::exchange(waits_, false))
      throw_error<UsageError>(
          {"backward of one forward twice: its saved values are gone; call forward again, or add up the gradients of its output "
           "first"});
    const TracedAction action = open_->action('B');
    AnyValue g;
    std::size_t unit = open_->run.units() - 1;
    if constexpr (predicts) {
      open_->run.backward(unit, [&] {
        auto split = weft::backward_input(*layer_, context(), std::move(*saved_), gradient);
        saved_.reset();
        weft::backward_weight(*layer_, context(), std::move(split.deferred));
        g = AnyValue(input_gradient_of<Hidden>(std::move(split.input_gradient)));
      });
    } else {
      g = AnyValue(gradient_t<Output>(gradient));
    }
    while (unit-- > 0) open_->run.backward(unit, g);
  }

 private:
  const Context& context() const { return *static_cast<const Context*>(open_->run.call().context); }
  const auto& inputs() const { return *static_cast<const typename Types::Inputs*>(open_->run.call().inputs); }
  std::size_t micro() const { return open_->run.call().micro; }

  std::unique_ptr<OpenCall> open_;
  std::unique_ptr<std::conditional_t<predicts, Layer, int>> layer_;
  Output output_;
  std::unique_ptr<typename Outcome::saved_type> saved_;
  bool waits_ = false;
};

/// The model's own loss of some samples, waiting for its backward.
class ModelLossCall {
  using Sum = Tensor<double, StepBatch::Exec>;

 public:
  /// `count`: of the global batch. `checks`: whether the loss is still to be shown to be a sum; null: not here.
  ModelLossCall(std::unique_ptr<OpenCall> open, const LossAxes& axes, double count, LossChecks* checks);
  /// The sum over the ranks that cut the batch, divided by the count of the global batch: over all micro-batches these add up to
  /// train_step's result. The same on every rank.
  double value() const { return value_; }
  /// Adds `weight` times the gradients of the parameters. Once.
  void backward(double weight = 1);

 private:
  std::unique_ptr<OpenCall> open_;
  double count_, value_ = 0;
  bool waits_ = false;
};

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/pipeline/unit_calls_impl.hpp>
#endif
