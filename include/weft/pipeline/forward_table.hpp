// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table of a forward alone (evaluations, predictions): a schedule's stages, in an order that has no limits on micro-batches,
// since nothing waits for a backward. A rank takes its chunks in the order of the model, each for all micro-batches.
//
//   const schedule::Table table = forward_table(schedule, ranks, micro_batches);

#include <algorithm>

#include <weft/core/text.hpp>
#include <weft/pipeline/schedule/any_schedule.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::detail {

WEFT_COLD inline schedule::Table forward_table(const schedule::AnySchedule& schedule, int ranks, int micro_batches) {
  schedule::Table table{ranks, schedule.chunks(), micro_batches, {}, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    auto& order = table.orders.emplace_back();
    auto& stages = table.stage_of.emplace_back();
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      stages.push_back(schedule.stage(rank, chunk, ranks));
      for (int micro = 0; micro < micro_batches; ++micro) order.push_back({schedule::Op::F, chunk, micro});
    }
    std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return stages[a.chunk] < stages[b.chunk]; });
  }
  return table;
}

}  // namespace weft::detail
