// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shapes of the messages between a pipeline's stages, found by a forward of the whole model outside the rehearsal's records
// and counts.
//
//   learn_shapes<Model>(context, config, part, schedule, accumulator, stage_of, shapes);

#include <cstddef>
#include <span>

#include <weft/comm/communicator.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/pipeline/model_aside.hpp>
#include <weft/pipeline/stage_channel.hpp>

namespace weft::detail {

/// Adds the shapes for the micro-batches of `part` whose sizes are new. `stage_of`: the stage of each unit.
template <class Model, class Context, class Batch>
WEFT_COLD void learn_shapes(const Context& context, const typename Model::Config& config, const Batch& part,
                            const schedule::AnySchedule& schedule, GradientAccumulator& accumulator,
                            std::span<const std::size_t> stage_of, StageShapes& shapes) {
  using Exec = typename Context::execution_space;
  const BatchShare share = share_of(part);
  std::size_t micro = 0;
  const auto next_unknown = [&] {
    while (micro < share.micro_batches && shapes.knows(share.micro_batch(micro))) ++micro;
    return micro < share.micro_batches;
  };
  if (!next_unknown()) return;
  ModelAside<Model, Context> aside(context, config, part, schedule, accumulator);
  for (; next_unknown(); ++micro) {
    StageChannel<Exec> channel(context.device(), Communicator());  // to this rank itself, and never received
    aside.forward(micro, [&](std::size_t unit, AnyValue& hidden) {
      if (stage_of[unit] != stage_of[unit + 1])
        aside.whole().units[unit].layer->transports().output->send(channel, hidden, 0,
                                                                   {int(stage_of[unit + 1]), int(micro), true});
    });
    channel.add_shapes(share.micro_batch(micro), shapes);
  }
}

}  // namespace weft::detail
