// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/learn_shapes.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/comm/communicator.hpp>
#include <weft/core/inline.hpp>
#include <weft/data/batch_share.hpp>
#include <weft/pipeline/learn_shapes.hpp>
#include <weft/pipeline/model_aside.hpp>
#include <weft/pipeline/stage_channel.hpp>

namespace weft::detail {

WEFT_COLD WEFT_INLINE void learn_shapes(const StepBatch& batch, const schedule::AnySchedule& schedule, int ranks,
                                        GradientAccumulator& accumulator, std::span<const std::size_t> stage_of,
                                        StageShapes& shapes) {
  const BatchShare share = batch.share();
  std::size_t micro = 0;
  const auto next_unknown = [&] {
    while (micro < share.micro_batches && shapes.knows(share.micro_batch(micro))) ++micro;
    return micro < share.micro_batches;
  };
  if (!next_unknown()) return;
  ModelAside aside(batch, schedule, ranks, accumulator);
  for (; next_unknown(); ++micro) {
    StageChannel<StepBatch::Exec> channel(batch.device(), Communicator());  // to this rank itself, and never received
    aside.forward(micro, [&](std::size_t unit, AnyValue& hidden) {
      if (stage_of[unit] != stage_of[unit + 1])
        aside.whole().units[unit].layer->transports().output->send(channel, hidden, 0,
                                                                   {int(stage_of[unit + 1]), int(micro), true});
    });
    channel.add_shapes(share.micro_batch(micro), shapes);
  }
}

}  // namespace weft::detail
