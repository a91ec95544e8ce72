// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sends and receives of a schedule, placed so that they need neither buffers nor tags. All messages have one global order and
// each rank's list keeps to it, so the ranks reach the end even if every send blocks until its receive.
//
//   const auto steps = schedule::with_messages(table);   // steps[rank]: actions, sends and receives

#include <algorithm>
#include <cstddef>
#include <vector>

#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// An activation (forward) or a gradient (not forward), sent from one rank to another for the action on `stage`.
struct Message {
  int from = -1, to = -1;    ///< ranks; −1: no message (first or last stage, or both stages on one rank)
  int stage = 0, micro = 0;  ///< the stage and micro-batch of the action that needs it
  bool forward = true;

  friend constexpr bool operator==(const Message&, const Message&) = default;
};

/// The rank that holds a stage, or −1 outside the model.
constexpr int rank_of(const Table& table, int stage) {
  for (int rank = 0; rank < table.ranks; ++rank)
    for (const int held : table.stage_of[std::size_t(rank)])
      if (held == stage) return rank;
  return -1;
}

/// The message with an action's result; `to` is −1 if there is none.
constexpr Message sent_by(const Table& table, int rank, const Action& action) {
  if (action.what == Op::W) return {};
  const bool forward = action.what == Op::F;
  const int stage = table.stage(rank, action.chunk) + (forward ? 1 : -1);
  const int to = rank_of(table, stage);
  return to < 0 || to == rank ? Message{} : Message{rank, to, stage, action.micro, forward};
}

/// The message that an action waits for; `from` is −1 if there is none.
constexpr Message wanted_by(const Table& table, int rank, const Action& action) {
  if (action.what == Op::W) return {};
  const bool forward = action.what == Op::F;
  const int stage = table.stage(rank, action.chunk);
  const int from = rank_of(table, stage + (forward ? -1 : 1));
  return from < 0 || from == rank ? Message{} : Message{from, rank, stage, action.micro, forward};
}

/// One step of a rank: an action, or a send or receive between actions.
struct Step {
  enum class Kind : char { compute, send, receive } kind;
  Action action;    ///< set for Kind::compute
  Message message;  ///< set for Kind::send and Kind::receive
};

/// The steps of each rank. A message is placed at the time, with equal costs, at which its sender has just produced it: the
/// receive is not so late that the sender is held up, and not so early that the receiver waits although it has work.
constexpr std::vector<std::vector<Step>> with_messages(const Table& table) {
  struct Event {
    double time;
    Message message;
  };
  const Timeline timeline = simulate(table);
  std::vector<Event> events;
  for (int rank = 0; rank < table.ranks; ++rank) {
    const Order& order = table.orders[std::size_t(rank)];
    for (std::size_t i = 0; i < order.size(); ++i)
      if (const Message m = sent_by(table, rank, order[i]); m.to >= 0) events.push_back({timeline.end[std::size_t(rank)][i], m});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time                   ? a.time < b.time
           : a.message.from != b.message.from ? a.message.from < b.message.from
                                              : a.message.to < b.message.to;
  });
  std::vector<std::vector<Step>> steps(std::size_t(table.ranks));
  for (int rank = 0; rank < table.ranks; ++rank) {
    auto& mine = steps[std::size_t(rank)];
    const Order& order = table.orders[std::size_t(rank)];
    std::size_t i = 0;
    const auto compute_before = [&](double time) {
      for (; i < order.size() && timeline.start[std::size_t(rank)][i] < time; ++i)
        mine.push_back({Step::Kind::compute, order[i], {}});
    };
    for (const Event& event : events) {
      if (event.message.from != rank && event.message.to != rank) continue;
      compute_before(event.time);
      mine.push_back({event.message.from == rank ? Step::Kind::send : Step::Kind::receive, {}, event.message});
    }
    compute_before(timeline.makespan + 1);
  }
  return steps;
}

/// True if each rank's list receives the input of every action before the action.
constexpr bool received_before_use(const Table& table, const std::vector<std::vector<Step>>& steps) {
  const std::size_t M = std::size_t(table.micro_batches);
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    std::vector<char> here(std::size_t(table.stages()) * M * 2, 0);
    const auto cell = [&](const Message& m) -> char& {
      return here[(std::size_t(m.stage) * M + std::size_t(m.micro)) * 2 + (m.forward ? 1 : 0)];
    };
    for (const Step& step : steps[rank]) {
      if (step.kind == Step::Kind::receive) cell(step.message) = 1;
      if (step.kind != Step::Kind::compute) continue;
      if (const Message wanted = wanted_by(table, int(rank), step.action); wanted.from >= 0 && !cell(wanted)) return false;
    }
  }
  return true;
}

/// Runs the steps with sends that wait for their receives. True if all ranks reach the end and both ends of a channel name the
/// same message.
constexpr bool runs_with_rendezvous(const std::vector<std::vector<Step>>& steps) {
  std::vector<std::size_t> at(steps.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < steps.size(); ++rank)
      for (; at[rank] < steps[rank].size(); ++at[rank], moved = true) {
        const Step& step = steps[rank][at[rank]];
        if (step.kind == Step::Kind::receive) break;  // advanced by its sender
        if (step.kind == Step::Kind::compute) continue;
        const std::size_t to = std::size_t(step.message.to);
        if (at[to] == steps[to].size()) return false;
        const Step& other = steps[to][at[to]];
        if (other.kind != Step::Kind::receive || other.message.from != int(rank)) break;
        if (!(other.message == step.message)) return false;  // the receiver expects another message
        ++at[to];
      }
  }
  for (std::size_t rank = 0; rank < steps.size(); ++rank)
    if (at[rank] != steps[rank].size()) return false;
  return true;
}

}  // namespace weft::schedule
