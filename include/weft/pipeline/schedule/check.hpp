// SPDX-License-Identifier: Apache-2.0
#pragma once
// The checker of all schedules, built-in and user-defined. The same function runs in static_assert (for small tables, since
// compilers limit constexpr steps) and at run time (for all tables).
//
//   static_assert(schedule::proven<schedule::GPipe>(4, 8));
//   const schedule::Proof proof = schedule::prove(my_table);   // proof.ok(), proof.makespan, proof.peak[rank]

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <weft/pipeline/schedule/messages.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// The properties of a table. Times are in the unit of the costs.
struct Proof {
  bool complete = false;          ///< each stage is on one rank and does each micro-batch once: F, and B or I with W
  bool ordered = false;           ///< on each rank F comes before B or I, I before W, and pairs have two members
  bool no_deadlock = false;       ///< every action gets its input if sends do not block
  bool rendezvous = false;        ///< the same if every send waits for its receive (messages.hpp)
  bool pairwise = false;          ///< between two ranks, each direction (F; B or I) sends in the order of use
  bool weights_in_order = false;  ///< each stage adds its weight gradients in micro-batch order: same bits as accumulation
  double makespan = 0;
  double bubble = 0;      ///< makespan − busy time, of the rank that is idle longest
  std::vector<int> peak;  ///< by rank: most chunk activations held at once (from F until B or W)

  constexpr bool ok() const { return complete && ordered && no_deadlock && rendezvous && pairwise; }
};

namespace detail {

/// True if each stage is on one rank and does each micro-batch exactly once. The checks below rely on it for valid indices.
constexpr bool complete(const Table& table) {
  const int stages = table.stages(), M = table.micro_batches;
  if (table.ranks < 1 || table.chunks < 1 || M < 1) return false;
  if (int(table.orders.size()) != table.ranks || int(table.stage_of.size()) != table.ranks) return false;
  std::vector<char> owned(std::size_t(stages), 0);
  for (const auto& row : table.stage_of) {
    if (int(row.size()) != table.chunks) return false;
    for (const int stage : row)
      if (stage < 0 || stage >= stages || owned[std::size_t(stage)]++) return false;
  }
  struct Count {
    int forward = 0, input = 0, weight = 0, whole = 0;
  };
  for (int rank = 0; rank < table.ranks; ++rank) {
    if (table.orders[std::size_t(rank)].size() / 2 < std::size_t(table.chunks) * std::size_t(M)) return false;  // limits memory
    std::vector<Count> counts(std::size_t(table.chunks) * std::size_t(M));
    for (const Action& a : table.orders[std::size_t(rank)]) {
      if (a.chunk < 0 || a.chunk >= table.chunks || a.micro < 0 || a.micro >= M) return false;
      Count& count = counts[std::size_t(a.chunk) * std::size_t(M) + std::size_t(a.micro)];
      ++(a.what == Op::F ? count.forward : a.what == Op::I ? count.input : a.what == Op::W ? count.weight : count.whole);
    }
    for (const Count& c : counts)
      if (c.forward != 1 || c.input != c.weight || c.whole + c.input != 1) return false;
  }
  return true;
}

/// True if on each rank F comes before its backward and I before its W, and each pair has two members.
constexpr bool ordered(const Table& table) {
  for (const Order& order : table.orders) {
    const std::size_t M = std::size_t(table.micro_batches);
    std::vector<char> forward(std::size_t(table.chunks) * M, 0), input(forward);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Action& a = order[i];
      const std::size_t at = std::size_t(a.chunk) * M + std::size_t(a.micro);
      if (a.what == Op::F) forward[at] = 1;
      if ((a.what == Op::B || a.what == Op::I) && !forward[at]) return false;
      if (a.what == Op::I) input[at] = 1;
      if (a.what == Op::W && !input[at]) return false;
      if (a.with_next &&
          (i + 1 == order.size() || order[i + 1].with_next || (order[i + 1].chunk == a.chunk && order[i + 1].micro == a.micro)))
        return false;
    }
  }
  return true;
}

constexpr bool weights_in_order(const Table& table) {
  for (const Order& order : table.orders) {
    std::vector<int> next(std::size_t(table.chunks), 0);
    for (const Action& a : order)
      if ((a.what == Op::B || a.what == Op::W) && a.micro != next[std::size_t(a.chunk)]++) return false;
  }
  return true;
}

/// True if the messages from one rank to another, in one direction, are sent in the order in which the receiver uses them.
constexpr bool pairwise(const Table& table) {
  const std::size_t ranks = table.orders.size();
  std::vector<Message> sent, wanted;  // of all ranks, each rank's messages in its order
  std::vector<std::size_t> next;      // by (from, to, direction): the index in `sent` from which to search
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    next.insert(next.end(), 2 * ranks, sent.size());
    for (const Action& a : table.orders[rank]) {
      if (const Message m = sent_by(table, int(rank), a); m.to >= 0) sent.push_back(m);
      if (const Message m = wanted_by(table, int(rank), a); m.from >= 0) wanted.push_back(m);
    }
  }
  // The k-th message that a rank wants from another in one direction is the k-th that the other sends to it in that direction.
  for (const Message& want : wanted) {
    std::size_t& at = next[(std::size_t(want.from) * ranks + std::size_t(want.to)) * 2 + (want.forward ? 1 : 0)];
    while (at < sent.size() && sent[at].from == want.from && (sent[at].to != want.to || sent[at].forward != want.forward)) ++at;
    if (at == sent.size() || !(sent[at++] == want)) return false;
  }
  return true;
}

}  // namespace detail

/// Checks a table; `costs` give the times.
constexpr Proof prove(const Table& table, Costs costs = {}) {
  Proof proof;
  proof.complete = detail::complete(table);
  if (!proof.complete) return proof;  // the other properties are undefined
  proof.ordered = detail::ordered(table);
  if (!proof.ordered) return proof;
  const Timeline timeline = simulate(table, costs);
  proof.no_deadlock = timeline.finished;
  proof.pairwise = detail::pairwise(table);
  proof.weights_in_order = detail::weights_in_order(table);
  if (proof.no_deadlock) {
    const auto steps = with_messages(table);
    proof.rendezvous = received_before_use(table, steps) && runs_with_rendezvous(steps);
  }
  proof.makespan = timeline.makespan;
  for (std::size_t rank = 0; rank < table.orders.size(); ++rank) {
    int live = 0, peak = 0;
    for (const Action& a : table.orders[rank]) {
      if (a.what == Op::F) peak = std::max(peak, ++live);
      if (a.what == Op::B || a.what == Op::W) --live;
    }
    proof.peak.push_back(peak);
    proof.bubble = std::max(proof.bubble, timeline.makespan - timeline.busy[rank]);
  }
  return proof;
}

/// Throws LayoutError with the first property that does not hold, if there is one.
inline void require_proven(const Table& table, const std::string& what) {
  const Proof proof = prove(table);
  const std::string where = what + " (" + std::to_string(table.ranks) + " ranks, " + std::to_string(table.chunks) +
                            " stages a rank, " + std::to_string(table.micro_batches) + " micro-batches) ";
  if (!proof.complete)
    throw LayoutError(where +
                      "is not complete: every stage must be on one rank, every rank must hold as many, and every stage must do "
                      "each micro-batch once, F and either B or I and W");
  if (!proof.ordered)
    throw LayoutError(where + "is out of order: on a rank F goes before B or I, I before W, and a pair has two members");
  if (!proof.no_deadlock) throw LayoutError(where + "deadlocks: ranks wait for each other's results in a circle");
  if (!proof.pairwise) throw LayoutError(where + "crosses messages: a rank wants them in another order than they are sent in");
  if (!proof.rendezvous) throw LayoutError(where + "deadlocks where sends wait for their receives");
}

template <Schedule S>
constexpr Proof prove(int ranks, int micro_batches, Costs costs = {}) {
  return prove(table<S>(ranks, micro_batches), costs);
}

/// True if everything that S states about itself holds for these numbers: the whole proof, its bubble and its peaks.
template <Schedule S>
constexpr bool proven(int ranks, int micro_batches, Costs costs = {}) {
  const Proof proof = prove<S>(ranks, micro_batches, costs);
  bool holds = proof.ok() && proof.weights_in_order && proof.bubble == S::bubble(ranks, micro_batches, costs);
  for (int rank = 0; holds && rank < ranks; ++rank) holds = proof.peak[std::size_t(rank)] == S::peak(rank, ranks, micro_batches);
  return holds;
}

}  // namespace weft::schedule
