// SPDX-License-Identifier: Apache-2.0
#pragma once
// The costs of a piece, read from the trace of its rehearsal. Definitions for plan/piece.hpp.

#include <algorithm>
#include <string_view>

#include <weft/comm/operation.hpp>
#include <weft/core/inline.hpp>
#include <weft/mesh/axis.hpp>
#include <weft/plan/estimate.hpp>
#include <weft/plan/piece.hpp>
#include <weft/plan/replay.hpp>
#include <weft/runtime/rehearse.hpp>

namespace weft::plan::detail {

/// 0: dp, 1: edp; -1: other axes.
inline int data_axis(std::string_view axis) { return axis.starts_with("edp") ? 1 : axis.find("dp") != axis.npos ? 0 : -1; }

inline DataMessage data_message(comm::Operation operation, std::string_view axis) {
  using comm::Operation;
  if (operation == Operation::all_reduce || operation == Operation::reduce)
    return weft::detail::axis_of_copies(axis).empty() ? DataMessage::sum : DataMessage::sum_of_copies;
  return operation == Operation::reduce_scatter || operation == Operation::reduce_scatter_v ? DataMessage::scatter
                                                                                            : DataMessage::gather;
}

/// True for all-reduces of gradients over cp. They run once per step unless gradients are sharded in each micro-batch.
inline bool sums_over_context(const RehearsedTrace::Event& e, std::string_view axis) {
  return axis == "cp" && comm::Operation(e.a) == comm::Operation::all_reduce &&
         (e.kind == RehearsedTrace::Kind::call || e.kind == RehearsedTrace::Kind::start);
}

WEFT_COLD WEFT_INLINE PieceCosts piece_costs(const Piece& piece, const Machine& machine, const TrainPiece& train) {
  using Kind = RehearsedTrace::Kind;
  const Rehearsal notes =
      runtime::rehearse({.rank = 0, .ranks = piece.layout.ranks(), .ranks_per_node = machine.ranks_per_node, .trace = true},
                        [&](World& world) { train(world, piece); });
  const RehearsedTrace& trace = *notes.trace;
  EventCosts events = costs_of(notes, machine);
  events.ranks_per_core = 1;
  events.message = [all = events.message](const RehearsedTrace::Event& e, const RehearsedTrace::Group& group) {
    return data_axis(group.axis) >= 0 || sums_over_context(e, group.axis) ? 0.0 : all(e, group);
  };
  const Replayed step = replay({&trace}, events);
  PieceCosts costs;
  const schedule::Order& order = step.table.orders.front();
  double end = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    end = std::max(end, step.timeline.end[0][i]);
    (order[i].what == schedule::Op::F ? costs.forward : costs.backward) += step.timeline.end[0][i] - step.timeline.start[0][i];
  }
  costs.optimizer = step.seconds - end;
  costs.kept = double(notes.kept.current);
  costs.peak = double(notes.peak);
  costs.activations = notes.last_step.activation_bytes;
  costs.offloaded = notes.last_step.offloaded_bytes - costs.activations;
  std::size_t actions = 0, phase = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) actions += trace[i].kind == Kind::end;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const RehearsedTrace::Event& e = trace[i];
    if (e.kind == Kind::begin) phase = e.operation == 'F' ? 0 : 1;
    if (e.kind == Kind::end && --actions == 0) phase = 2;
    if (e.kind != Kind::call && e.kind != Kind::start) continue;
    const std::string_view name = trace.groups[std::size_t(e.group)].axis;
    if (sums_over_context(e, name)) costs.context_bytes += e.amount, costs.context_calls += 1;
    const int axis = data_axis(name);
    if (axis < 0) continue;
    auto& sum = costs.messages[phase][std::size_t(axis)][std::size_t(data_message(comm::Operation(e.a), name))];
    sum[0] += e.amount, sum[1] += 1;
  }
  return costs;
}

WEFT_COLD WEFT_INLINE double piece_peak(const Piece& piece, const TrainPiece& train) {
  const Candidate& c = piece.layout;
  const runtime::RehearsedRank last{.rank = c.ranks() / c.pp * (c.pp - 1), .ranks = c.ranks()};
  return double(runtime::rehearse(last, [&](World& world) { train(world, piece); }).peak);
}

}  // namespace weft::plan::detail
