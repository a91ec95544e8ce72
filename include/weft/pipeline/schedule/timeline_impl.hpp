// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for pipeline/schedule/timeline.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/pipeline/schedule/timeline.hpp>

namespace weft::schedule::detail {

/// One moment shared by all ranks, on each rank's own clock. A rank may notice the end of a barrier late, so it is taken from
/// many: the median of the differences between this rank's clock and the first rank's.
WEFT_INLINE double common_moment(const Communicator& pipeline) {
  constexpr std::size_t barriers = 15;
  std::vector<double> mine, first;
  for (std::size_t i = 0; i < barriers; ++i) {
    pipeline.barrier();
    mine.push_back(TimelineRecorder::now());
  }
  first = mine;
  pipeline.broadcast(first, 0);
  std::vector<double> ahead(barriers);
  for (std::size_t i = 0; i < barriers; ++i) ahead[i] = mine[i] - first[i];
  std::nth_element(ahead.begin(), ahead.begin() + barriers / 2, ahead.end());
  return first.back() + ahead[barriers / 2];
}

}  // namespace weft::schedule::detail

namespace weft::schedule {

WEFT_INLINE Timeline measured(const TimelineRecorder& recording, const Communicator& pipeline) {
  const double zero = detail::common_moment(pipeline);
  const Table& table = recording.table();
  Timeline timeline;
  std::vector<std::size_t> counts;
  std::size_t total = 0;
  for (const Order& order : table.orders) {
    counts.push_back(2 * order.size());
    total += counts.back();
  }
  std::vector<double> mine, all(total);
  for (const auto* times : {&recording.starts(), &recording.ends()})
    for (const double time : *times) mine.push_back(time - zero);
  pipeline.all_gather_v(mine, all, counts);
  const double first = all.empty() ? 0 : *std::min_element(all.begin(), all.end());
  const double* next = all.data();
  for (const Order& order : table.orders) {
    auto& start = timeline.start.emplace_back();
    auto& end = timeline.end.emplace_back();
    for (std::size_t i = 0; i < order.size(); ++i) start.push_back(*next++ - first);
    for (std::size_t i = 0; i < order.size(); ++i) end.push_back(*next++ - first);
    double busy = 0;
    for (std::size_t i = 0; i < order.size(); ++i) busy += end[i] - start[i];
    timeline.busy.push_back(busy);
    if (!end.empty()) timeline.makespan = std::max(timeline.makespan, end.back());
  }
  timeline.finished = true;
  return timeline;
}

}  // namespace weft::schedule
