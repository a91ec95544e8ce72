// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/model_aside.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/model_aside.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE ModelAside::ModelAside(const StepBatch& batch, const schedule::AnySchedule& schedule, int ranks,
                                             GradientAccumulator& accumulator)
    : aside_(batch.device()), batch_(batch.without_hooks()), whole_(batch_->build()) {
  const BatchShare share = batch_->share();
  for (const auto& unit : whole_.units)
    for (ParameterState* state : unit.used)
      if (!state->value()) state->storage().set_value(batch_->device().allocate(state->bytes()));
  table_ = forward_table(schedule, ranks, int(share.micro_batches));
  none_.emplace_back(new Chunk<Exec>());
  batch_->engine().records = false;
  batch_->engine().calls = nullptr;
  run_ = std::make_unique<Executor<Exec>>(batch_->place(Communicator()), none_, table_, share, accumulator);
}

WEFT_COLD WEFT_INLINE AnyValue ModelAside::forward(std::size_t micro, const std::function<void(std::size_t, AnyValue&)>& f) {
  run_->enter(micro);
  const UnitCall call = run_->call_of(micro);
  AnyValue hidden;
  for (std::size_t unit = 0; unit + 1 < whole_.units.size(); ++unit) {
    const StackUnit<Exec>& layer = *whole_.units[unit].layer;
    AnyValue inputs = layer.inputs(call);
    layer.forward(call, inputs, hidden, hidden, nullptr);
    f(unit, hidden);
  }
  return hidden;
}

}  // namespace weft::detail
