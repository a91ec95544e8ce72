// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table of a forward without a backward (evaluations, predictions). It has the schedule's stages but does not limit
// micro-batches in flight, since no backward follows. A rank runs its chunks in the model's order, each for all micro-batches.
//
//   const schedule::Table table = forward_table(schedule, ranks, micro_batches);

#include <cstddef>

#include <weft/core/text.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::detail {

WEFT_COLD inline schedule::Table forward_table(const schedule::AnySchedule& schedule, int ranks, int micro_batches) {
  schedule::Table table{ranks, schedule.chunks(), micro_batches, {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    auto& order = table.orders.emplace_back();
    auto& stages = table.stage_of.emplace_back();
    for (int chunk = 0; chunk < table.chunks; ++chunk) stages.push_back(schedule.stage(rank, chunk, ranks));
    for (int stage = 0; stage < table.stages(); ++stage)
      for (int chunk = 0; chunk < table.chunks; ++chunk)
        for (int micro = 0; micro < micro_batches && stages[std::size_t(chunk)] == stage; ++micro)
          order.push_back({schedule::Op::F, chunk, micro});
  }
  return table;
}

}  // namespace weft::detail
