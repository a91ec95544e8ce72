// SPDX-License-Identifier: Apache-2.0
#pragma once
// When each action of a schedule starts and ends if communication takes no time: what the checker measures and what the
// pictures show.
//
//   schedule::Timeline timeline = schedule::simulate(table, {.forward = 1, .input = 1, .weight = 1});

#include <algorithm>
#include <cstddef>
#include <vector>

#include <weft/parallel/schedule/table.hpp>

namespace weft::schedule {

/// `start[rank][i]` and `end[rank][i]` belong to the i-th action of the rank's order.
struct Timeline {
  bool finished = false;  ///< false: some rank waits for an input that never comes
  double makespan = 0;
  std::vector<std::vector<double>> start, end;
  std::vector<double> busy;  ///< by rank
};

/// Runs a complete table: each rank takes its actions in order, each as soon as its input is there. `cost(stage, what)` is
/// the time of an action, so that stages may be of unequal cost.
template <class Cost>
requires requires(Cost cost) { double(cost(0, Do::F)); }
constexpr Timeline simulate(const Table& table, Cost cost) {
  const std::size_t ranks = std::size_t(table.ranks), M = std::size_t(table.micro_batches);
  const int stages = table.stages();
  Timeline timeline;
  timeline.start.resize(ranks);
  timeline.end.resize(ranks);
  timeline.busy.assign(ranks, 0);
  constexpr double never = -1;
  std::vector<double> forward(std::size_t(stages) * M, never), input(forward), clock(ranks, 0);
  std::vector<std::size_t> at(ranks, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Order& order = table.orders[rank];
      for (; at[rank] < order.size(); ++at[rank]) {
        const Action& a = order[at[rank]];
        const int stage = table.stage(int(rank), a.chunk);
        const auto cell = [&](int s) { return std::size_t(s) * M + std::size_t(a.micro); };
        double ready = 0;  // when the input is there
        if (a.what == Do::F && stage > 0) ready = forward[cell(stage - 1)];
        if (a.what == Do::B || a.what == Do::I) {
          ready = stage + 1 < stages ? input[cell(stage + 1)] : 0;
          if (forward[cell(stage)] == never) ready = never;
        }
        if (a.what == Do::W) ready = input[cell(stage)];
        if (ready == never) break;
        const double begin = std::max(clock[rank], ready), time = double(cost(stage, a.what));
        clock[rank] = begin + time;
        timeline.start[rank].push_back(begin);
        timeline.end[rank].push_back(clock[rank]);
        timeline.busy[rank] += time;
        if (a.what == Do::F) forward[cell(stage)] = clock[rank];
        if (a.what == Do::B || a.what == Do::I) input[cell(stage)] = clock[rank];
        moved = true;
      }
    }
  }
  timeline.finished = true;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    timeline.finished = timeline.finished && at[rank] == table.orders[rank].size();
    timeline.makespan = std::max(timeline.makespan, clock[rank]);
  }
  return timeline;
}

/// The same with equal stages.
constexpr Timeline simulate(const Table& table, Costs costs = {}) {
  return simulate(table, [costs](int, Do what) { return costs.of(what); });
}

}  // namespace weft::schedule
