// SPDX-License-Identifier: Apache-2.0
#pragma once
// The simulation of a schedule: the start and the end of each action if communication takes no time, or the same time for each
// message. The checker measures bubbles with it, and pictures show it.
//
//   schedule::Timeline timeline = schedule::simulate(table, {.forward = 1, .input = 1, .weight = 1});

#include <algorithm>
#include <cstddef>
#include <vector>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// `start[rank][i]` and `end[rank][i]` are the times of the i-th action in the rank's order.
struct Timeline {
  bool finished = false;  ///< false: a rank waits for an input that never comes
  double makespan = 0;
  std::vector<std::vector<double>> start, end;
  std::vector<double> busy;  ///< by rank
};

namespace detail {
template <class Cost>
concept CostOfKind = requires(Cost cost) {
  double(cost(0, Op::F));
};
template <class Cost>
concept CostOfAction = requires(Cost cost, const Action& action) {
  double(cost(0, action));
};
}  // namespace detail

/// Runs a complete table: each rank takes its actions in order and starts each one when its input has arrived. `cost(stage,
/// what)` is the time of an action, so stages may differ in cost; `cost(stage, action)` may differ by micro-batch, too. An
/// overlapped pair is one unit of work: it starts when both inputs have arrived, takes the sum of both times (no unmeasured gain
/// is assumed), and produces both results at its end. `arrival(timeline, rank, i, made)` is the time at which the i-th action of
/// a rank has its input, which another rank made at the time `made`; the timeline has the rank's actions before that one.
template <class Cost, class Arrival>
requires((detail::CostOfKind<Cost> || detail::CostOfAction<Cost>)&&requires(Arrival arrival, const Timeline& timeline) {
  double(arrival(timeline, std::size_t(), std::size_t(), 0.0));
}) constexpr Timeline simulate(const Table& table, Cost cost, Arrival arrival) {
  const std::size_t ranks = std::size_t(table.ranks), M = std::size_t(table.micro_batches);
  const int stages = table.stages();
  Timeline timeline;
  timeline.start.resize(ranks);
  timeline.end.resize(ranks);
  timeline.busy.assign(ranks, 0);
  constexpr double never = -1;
  std::vector<double> forward(std::size_t(stages) * M, never), input(forward), clock(ranks, 0);
  std::vector<std::size_t> at(ranks, 0);
  const auto cell = [&](int stage, const Action& a) { return std::size_t(stage) * M + std::size_t(a.micro); };
  const auto ready = [&](std::size_t rank, std::size_t i) -> double {  // the time at which the input is there
    const Action& a = table.orders[rank][i];
    const int stage = table.stage(int(rank), a.chunk);
    const auto received = [&](int from, double made) {
      for (const int held : table.stage_of[rank])
        if (held == from) return made;
      return made == never ? never : double(arrival(timeline, rank, i, made));
    };
    if (a.what == Op::F) return stage > 0 ? received(stage - 1, forward[cell(stage - 1, a)]) : 0;
    if (a.what == Op::W) return input[cell(stage, a)];
    if (forward[cell(stage, a)] == never) return never;
    return stage + 1 < stages ? received(stage + 1, input[cell(stage + 1, a)]) : 0;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Order& order = table.orders[rank];
      while (at[rank] < order.size()) {
        const std::size_t members = order[at[rank]].with_next && at[rank] + 1 < order.size() ? 2 : 1;
        double begin = clock[rank], time = 0;
        bool wait = false;
        for (std::size_t i = at[rank]; i < at[rank] + members; ++i) {
          const double from = ready(rank, i);
          wait = wait || from == never;
          begin = std::max(begin, from);
          const int stage = table.stage(int(rank), order[i].chunk);
          if constexpr (detail::CostOfAction<Cost>) time += double(cost(stage, order[i]));
          else time += double(cost(stage, order[i].what));
        }
        if (wait) break;
        clock[rank] = begin + time;
        timeline.busy[rank] += time;
        for (std::size_t i = at[rank]; i < at[rank] + members; ++i) {
          const Action& a = order[i];
          const int stage = table.stage(int(rank), a.chunk);
          timeline.start[rank].push_back(begin);
          timeline.end[rank].push_back(clock[rank]);
          if (a.what == Op::F) forward[cell(stage, a)] = clock[rank];
          if (a.what == Op::B || a.what == Op::I) input[cell(stage, a)] = clock[rank];
        }
        at[rank] += members;
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

/// The same if a message takes the time `message` from the end of an action until another rank has its result.
template <class Cost>
requires(detail::CostOfKind<Cost> || detail::CostOfAction<Cost>) constexpr Timeline
    simulate(const Table& table, Cost cost, double message = 0) {
  return simulate(table, cost, [message](const Timeline&, std::size_t, std::size_t, double made) { return made + message; });
}

/// The same for stages of equal cost.
constexpr Timeline simulate(const Table& table, Costs costs = {}, double message = 0) {
  return simulate(
      table, [costs](int, Op what) { return costs.of(what); }, message);
}

}  // namespace weft::schedule
