// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shapes of what a pipeline's stages send each other, found by a forward of the whole model beside the rehearsal: nothing of
// it is noted or counted.
//
//   learn_shapes<Model>(context, config, part, schedule, accumulator, stages_of, shapes);

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/layer/batch_share.hpp>
#include <weft/layer/parameter.hpp>
#include <weft/pipeline/chunk.hpp>
#include <weft/pipeline/forward_table.hpp>
#include <weft/pipeline/model_run.hpp>
#include <weft/pipeline/stage_channel.hpp>

namespace weft::detail {

/// Adds the shapes for the micro-batches of `part` whose sizes are new. `stages_of(whole)`: the stage of each unit.
template <class Model, class Context, class Batch, class StagesOf>
WEFT_COLD void learn_shapes(const Context& context, const typename Model::Config& config, const Batch& part,
                            const schedule::AnySchedule& schedule, GradientAccumulator& accumulator, const StagesOf& stages_of,
                            StageShapes& shapes) {
  using Exec = typename Context::execution_space;
  const BatchShare share = share_of(part);
  std::size_t micro = 0;
  const auto next_unknown = [&] {
    while (micro < share.micro_batches && shapes.knows(share.micro_batch(micro))) ++micro;
    return micro < share.micro_batches;
  };
  if (!next_unknown()) return;
  const RehearsedAside aside(context.device());
  Context own = context;
  own.engine.hooks.clear();
  const WholeModel<Exec> whole = ModelBuilder<Model, Context>(own, config).take();
  const std::vector<std::size_t> stage_of = stages_of(whole);
  for (const auto& unit : whole.units)
    for (ParameterState* state : unit.used)
      if (!state->value()) state->storage().set_value(own.device().allocate(state->bytes()));
  own.engine.running = true;
  own.engine.records = false;
  std::vector<std::unique_ptr<Chunk<Exec>>> none;
  none.emplace_back(new Chunk<Exec>());
  const schedule::Table table = forward_table(schedule, int(context.size(pp{})), int(share.micro_batches));
  ModelRun<Model, Context> run(own, none, table, part, accumulator);
  for (; next_unknown(); ++micro) {
    run.executor.enter(micro);
    const UnitCall call = run.executor.call_of(micro);
    StageChannel<Exec> channel(context.device(), Communicator());  // to this rank itself, and never received
    AnyValue hidden;
    for (std::size_t unit = 0; unit + 1 < whole.units.size(); ++unit) {
      const StackUnit<Exec>& layer = *whole.units[unit].layer;
      AnyValue inputs = layer.inputs(call);
      layer.forward(call, inputs, hidden, hidden, nullptr);
      if (stage_of[unit] != stage_of[unit + 1])
        layer.transports().output->send(channel, hidden, 0, {int(stage_of[unit + 1]), int(micro), true});
    }
    channel.add_shapes(share.micro_batch(micro), shapes);
  }
}

}  // namespace weft::detail
