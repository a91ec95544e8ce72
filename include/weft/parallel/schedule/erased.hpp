// SPDX-License-Identifier: Apache-2.0
#pragma once
// A schedule type as a value, so that the executor is compiled once for all schedules.

#include <string_view>

#include <weft/parallel/schedule/table.hpp>

namespace weft::schedule {

struct Erased {
  std::string_view name;
  int chunks = 1;
  int (*stage)(int rank, int chunk, int ranks) = nullptr;
  int (*stage_rank)(int stage, int ranks) = nullptr;  ///< the rank that holds a stage
  Table (*table)(int ranks, int micro_batches) = nullptr;
  void (*require)(int ranks, int micro_batches) = nullptr;  ///< LayoutError if there is no order for these
};

template <Schedule S>
constexpr Erased erase() {
  return {S::name, S::chunks, &S::stage, &S::rank_of, &table<S>, &require<S>};
}

}  // namespace weft::schedule
