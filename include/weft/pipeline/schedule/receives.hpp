// SPDX-License-Identifier: Apache-2.0
#pragma once
// The moments at which a rank posts its receives. A message travels while its receiver computes only if its receive is posted,
// and a posted receive holds a buffer. The order of the schedule bounds both: a message cannot be sent before the actions that
// its sender waits for, so an earlier receive would only hold memory.
//
//   for (const schedule::Receive& receive : schedule::receives(table, rank)) ...   // posted before orders[rank][receive.post]
//
// Example: 1F1B on 4 ranks. Rank 1 takes the activation of micro-batch 6 in its action 10. Rank 0 sends it after the backward of
// micro-batch 2, which waits for that of rank 1, its action 7. So the receive is posted between the actions 7 and 8.

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// The receive of the message that the action `use` of a rank's order takes. It is posted before the action `post`.
struct Receive {
  std::size_t post = 0, use = 0;
  bool forward = true;  ///< an activation; false: a gradient

  friend constexpr bool operator==(const Receive&, const Receive&) = default;
};

/// Receives of each direction that a rank may always have posted. More are posted only in the place of activations that it does
/// not hold yet, or does not hold any more.
inline constexpr std::size_t always_posted = 3;

namespace detail {

/// By action of `rank`: the number of its actions that are complete whenever the message for that action is sent, whatever the
/// actions cost. -1: the action takes no message of another rank.
constexpr std::vector<int> complete_before_send(const Table& table, int rank) {
  const std::size_t ranks = std::size_t(table.ranks), M = std::size_t(table.micro_batches);
  const int stages = table.stages();
  std::vector<int> holder(std::size_t(stages), -1);
  for (std::size_t r = 0; r < ranks; ++r)
    for (const int stage : table.stage_of[r]) holder[std::size_t(stage)] = int(r);
  constexpr int never = -1;
  std::vector<int> forward(std::size_t(stages) * M, never), gradient(forward);  // actions complete before each result is made
  std::vector<int> complete(ranks, 0), before(table.orders[std::size_t(rank)].size(), -1);
  std::vector<std::size_t> at(ranks, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks; ++r)
      for (; at[r] < table.orders[r].size(); ++at[r], moved = true) {
        const Action& action = table.orders[r][at[r]];
        const int stage = table.stage(int(r), action.chunk), from = stage + (action.what == Op::F ? -1 : 1);
        if (action.what != Op::W && from >= 0 && from < stages && holder[std::size_t(from)] != int(r)) {
          const int sent = (action.what == Op::F ? forward : gradient)[std::size_t(from) * M + std::size_t(action.micro)];
          if (sent == never) break;
          complete[r] = std::max(complete[r], sent);
          if (int(r) == rank) before[at[r]] = sent;
        }
        if (int(r) == rank) complete[r] = int(at[r]) + 1;
        if (action.what != Op::W)
          (action.what == Op::F ? forward : gradient)[std::size_t(stage) * M + std::size_t(action.micro)] = complete[r];
      }
  }
  return before;
}

/// By action: the activations that a rank holds before it, from a forward until its B or W. Zeros if the order has no backward.
constexpr std::vector<std::size_t> held_before(const Order& order) {
  std::vector<std::size_t> held(order.size(), 0);
  std::size_t now = 0;
  const auto frees = [](const Action& action) { return action.what == Op::B || action.what == Op::W; };
  if (std::none_of(order.begin(), order.end(), frees)) return held;
  for (std::size_t i = 0; i < order.size(); ++i) {
    held[i] = now;
    if (order[i].what == Op::F) ++now;
    if (frees(order[i])) --now;
  }
  return held;
}

}  // namespace detail

/// The receives of a rank in the order in which it posts them; each direction in the order of use. A receive is posted as soon as
/// its message may be sent, if fewer than `always` of its direction are posted, or if posted receives and held activations
/// together are fewer than the activations that the rank holds at most. So its memory is at most that of its activations and
/// 2 · `always` messages. The table is proven, or the forwards of a proven one.
constexpr std::vector<Receive> receives(const Table& table, int rank, std::size_t always = always_posted) {
  const Order& order = table.orders[std::size_t(rank)];
  const std::vector<int> before = detail::complete_before_send(table, rank);
  const std::vector<std::size_t> held = detail::held_before(order);
  const std::size_t most = held.empty() ? 0 : *std::max_element(held.begin(), held.end());
  struct Direction {
    bool forward;
    std::size_t next = 0, posted = 0;
  };
  std::array<Direction, 2> directions{Direction{true}, Direction{false}};
  std::vector<Receive> all;
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (Direction& one : directions)
      for (; one.next < order.size(); ++one.next) {
        if (before[one.next] < 0 || (order[one.next].what == Op::F) != one.forward) continue;
        const bool room = one.posted < always || held[i] + directions[0].posted + directions[1].posted < most;
        if (one.next != i && (before[one.next] > int(i) || !room)) break;
        all.push_back({i, one.next, one.forward});
        ++one.posted;
      }
    if (before[i] >= 0) --directions[order[i].what == Op::F ? 0 : 1].posted;
  }
  return all;
}

}  // namespace weft::schedule
