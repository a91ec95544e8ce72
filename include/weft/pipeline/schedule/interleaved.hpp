// SPDX-License-Identifier: Apache-2.0
#pragma once
// Interleaved 1F1B (Narayanan et al., arXiv:2104.04473; Megatron-LM's virtual pipeline): every rank holds several short stages.
// The bubble is as many steps as that of 1F1B, but steps of one short stage; the price is more messages and more activations
// held.
//
//   ModelOptions{.pipeline = {.schedule = schedule::interleaved<2>}}

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

namespace detail {

/// The order of interleaved forwards: for each group of micro-batches, for each chunk, each micro-batch of the group. Megatron
/// fixes the size of a group and so refuses most counts. Here the micro-batches are cut into as many groups of at least `ranks`
/// as possible, of sizes as equal as possible with the larger ones first. So no count is refused, and none makes the bubble
/// longer.
constexpr Order interleaved_forwards(int ranks, int chunks, int micro_batches) {
  const int groups = std::max(1, micro_batches / ranks);
  Order order;
  for (int group = 0, first = 0; group < groups; ++group) {
    const int size = micro_batches / groups + (group < micro_batches % groups ? 1 : 0);
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int micro = first; micro < first + size; ++micro) order.push_back({Op::F, chunk, micro});
    first += size;
  }
  return order;
}

/// The size of the first group, which is the largest.
constexpr int interleaved_group(int ranks, int micro_batches) {
  const int groups = std::max(1, micro_batches / ranks);
  return (micro_batches + groups - 1) / groups;
}

/// The k-th backward: the k-th forward with the chunks in reverse order.
constexpr Action mirrored(const Order& forwards, int k, int chunks, Op what) {
  const Action& forward = forwards[static_cast<std::size_t>(k)];
  return {what, chunks - 1 - forward.chunk, forward.micro};
}

/// The number of forwards before the first backward.
constexpr int interleaved_warm_up(int rank, int ranks, int chunks, int micro_batches) {
  return (chunks - 1) * interleaved_group(ranks, micro_batches) + (chunks > 1 ? 2 : 1) * (ranks - 1 - rank);
}

constexpr double interleaved_bubble(int ranks, int chunks, int micro_batches, Costs costs) {
  return (ranks - 1 + (chunks - 1) * std::max(0, ranks - micro_batches)) * (costs.forward + costs.backward());
}

constexpr int interleaved_peak(int rank, int ranks, int chunks, int micro_batches) {
  return std::min(interleaved_warm_up(rank, ranks, chunks, micro_batches) + 1, micro_batches * chunks);
}

constexpr Order interleaved_order(int rank, int ranks, int chunks, int micro_batches) {
  const Order forwards = interleaved_forwards(ranks, chunks, micro_batches);
  const int count = int(forwards.size());
  const int warm_up = std::min(interleaved_warm_up(rank, ranks, chunks, micro_batches), count);
  Order order(forwards.begin(), forwards.begin() + warm_up);
  for (int k = 0; k < count; ++k) {
    if (warm_up + k < count) order.push_back(forwards[std::size_t(warm_up + k)]);
    order.push_back(mirrored(forwards, k, chunks, Op::B));
  }
  return order;
}

}  // namespace detail

/// V stages per rank, any number of micro-batches. With fewer micro-batches than ranks the groups are short, and ranks wait
/// between chunks. If V is known only at run time, use schedule::choose("interleaved", V).
template <int V>
struct Interleaved : Loop {
  static_assert(V >= 1, "weft: Interleaved's V template parameter is the number of stages a rank, at least 1");
  static constexpr std::string_view name = "interleaved";
  static constexpr std::string_view limits = "needs at least one rank and one micro-batch";
  static constexpr int chunks = V;

  static constexpr bool applies(int ranks, int micro_batches) { return ranks >= 1 && micro_batches >= 1; }
  static constexpr double bubble(int ranks, int micro_batches, Costs costs) {
    return detail::interleaved_bubble(ranks, V, micro_batches, costs);
  }
  static constexpr int peak(int rank, int ranks, int micro_batches) {
    return detail::interleaved_peak(rank, ranks, V, micro_batches);
  }
  static constexpr Order order(int rank, int ranks, int micro_batches) {
    return detail::interleaved_order(rank, ranks, V, micro_batches);
  }
};
static_assert(Schedule<Interleaved<2>>);
/// Interleaved 1F1B as a value; the argument is the number of stages of a rank.
template <int V>
inline constexpr Value<Interleaved<V>> interleaved;

}  // namespace weft::schedule
