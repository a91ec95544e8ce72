// SPDX-License-Identifier: Apache-2.0
#pragma once
// Zero bubble (Qi et al., arXiv:2401.10241): weight gradients, which no other rank needs, are deferred and fill time that would
// be bubble. H1 needs the activation memory of 1F1B; the interleaved form does the same with several stages per rank.
//
//   ModelOptions{.pipeline = {.schedule = schedule::zero_bubble_h1}}

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

namespace detail {

constexpr double zero_bubble_bubble(int ranks, int chunks, int micro_batches, Costs costs) {
  const double saved = costs.forward + costs.input - costs.weight;
  const int missing = std::max(0, ranks - micro_batches), far = std::max(0, ranks - 2 * micro_batches);
  return (ranks - 1) * saved + missing * costs.weight + (chunks - 1) * (missing * saved + far * costs.weight);
}

constexpr int zero_bubble_peak(int ranks, int chunks, int micro_batches) {
  return std::min((chunks - 1) * interleaved_group(ranks, micro_batches) + ranks, micro_batches * chunks);
}

constexpr Order zero_bubble_order(int rank, int ranks, int chunks, int micro_batches) {
  const Order forwards = interleaved_forwards(ranks, chunks, micro_batches);
  const int count = int(forwards.size());
  const int warm_up = std::min((chunks - 1) * interleaved_group(ranks, micro_batches) + ranks - 1 - rank, count);
  Order order(forwards.begin(), forwards.begin() + warm_up);
  int weights = 0;
  for (int k = 0; k < count; ++k) {
    if (warm_up + k < count) order.push_back(forwards[std::size_t(warm_up + k)]);
    order.push_back(mirrored(forwards, k, chunks, Op::I));
    if (k >= rank) order.push_back(mirrored(forwards, weights++, chunks, Op::W));
  }
  while (weights < count) order.push_back(mirrored(forwards, weights++, chunks, Op::W));
  return order;
}

}  // namespace detail

/// V stages per rank, any number of micro-batches. Rank r starts its weight gradients after r input gradients, so all ranks hold
/// equally many activations. The bubble is exact for weight <= forward and weight <= input (longer weight steps make it longer).
/// With several stages per rank and fewer micro-batches than ranks it is exact for equal times and an upper bound for others.
template <int V>
struct InterleavedZeroBubble : Loop {
  static_assert(V >= 1, "weft: InterleavedZeroBubble's V template parameter is the number of stages a rank, at least 1");
  static constexpr std::string_view name = "interleaved-zb";
  static constexpr std::string_view limits = "needs at least one rank and one micro-batch";
  static constexpr int chunks = V;

  static constexpr bool applies(int ranks, int micro_batches) { return ranks >= 1 && micro_batches >= 1; }
  static constexpr double bubble(int ranks, int micro_batches, Costs costs) {
    return detail::zero_bubble_bubble(ranks, V, micro_batches, costs);
  }
  static constexpr int peak(int, int ranks, int micro_batches) { return detail::zero_bubble_peak(ranks, V, micro_batches); }

  static constexpr Order order(int rank, int ranks, int micro_batches) {
    return detail::zero_bubble_order(rank, ranks, V, micro_batches);
  }
};
static_assert(Schedule<InterleavedZeroBubble<2>>);
/// Interleaved 1F1B with split backwards as a value; the argument is the number of stages of a rank.
template <int V>
inline constexpr Value<InterleavedZeroBubble<V>> interleaved_zero_bubble;

/// One stage per rank; also called ZB1P.
struct ZeroBubbleH1 : InterleavedZeroBubble<1> {
  static constexpr std::string_view name = "zb-h1";
};
static_assert(Schedule<ZeroBubbleH1>);
/// ZB-H1 as a value.
inline constexpr Value<ZeroBubbleH1> zero_bubble_h1;

}  // namespace weft::schedule
