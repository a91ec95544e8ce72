// SPDX-License-Identifier: Apache-2.0
#pragma once
// A whole model on one rank of a rehearsal, outside the rehearsal's records and counts. A forward of all units computes the
// shapes that other stages determine.
//
//   ModelAside<Model, Context> aside(context, config, part, schedule, accumulator);
//   AnyValue hidden = aside.forward(micro, [](std::size_t unit, AnyValue& hidden) { ... });

#include <cstddef>
#include <memory>
#include <vector>

#include <weft/autograd/parameter.hpp>
#include <weft/core/text.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/model_run.hpp>

namespace weft::detail {

/// All units of a model on this rank; while it lives nothing is noted or counted.
template <class Model, class Context>
class ModelAside {
  using Exec = typename Context::execution_space;

 public:
  template <class Batch>
  WEFT_COLD ModelAside(const Context& context, const typename Model::Config& config, const Batch& part,
                       const schedule::AnySchedule& schedule, GradientAccumulator& accumulator)
      : aside_(context.device()),
        whole_(ModelBuilder<Model, Context>(without_hooks(context), config).take()),
        table_(forward_table(schedule, int(context.size(pp{})), int(share_of(part).micro_batches))) {
    for (const auto& unit : whole_.units)
      for (ParameterState* state : unit.used)
        if (!state->value()) state->storage().set_value(context.device().allocate(state->bytes()));
    none_.emplace_back(new Chunk<Exec>());
    run_ = std::make_unique<ModelRun<Model, Context>>(running(context), none_, table_, part, accumulator);
  }

  const WholeModel<Exec>& whole() const { return whole_; }
  const Context& context() const { return run_->context; }
  auto& inputs() { return run_->inputs; }

  /// Runs a micro-batch and returns the last unit's input. Calls `f(unit, hidden)` after each unit before it.
  template <class F>
  WEFT_COLD AnyValue forward(std::size_t micro, const F& f) {
    run_->executor.enter(micro);
    const UnitCall call = run_->executor.call_of(micro);
    AnyValue hidden;
    for (std::size_t unit = 0; unit + 1 < whole_.units.size(); ++unit) {
      const StackUnit<Exec>& layer = *whole_.units[unit].layer;
      AnyValue inputs = layer.inputs(call);
      layer.forward(call, inputs, hidden, hidden, nullptr);
      f(unit, hidden);
    }
    return hidden;
  }

 private:
  static Context without_hooks(Context context) {
    context.engine.hooks.clear();
    return context;
  }
  static Context running(const Context& context) {
    Context own = without_hooks(context);
    own.engine.running = true;
    own.engine.records = false;
    return own;
  }

  RehearsedAside<Exec> aside_;
  WholeModel<Exec> whole_;
  schedule::Table table_;
  std::vector<std::unique_ptr<Chunk<Exec>>> none_;
  std::unique_ptr<ModelRun<Model, Context>> run_;
};

}  // namespace weft::detail
