// SPDX-License-Identifier: Apache-2.0
#pragma once
// ZBV (Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362): two stages per rank, laid out as a V, so that
// rank 0 holds the first and the last stage. With enough micro-batches, no rank idles between its first and its last action if F,
// I and W take equal time.
//
//   ModelOptions{.pipeline = {.schedule = schedule::zbv}}

#include <algorithm>
#include <string_view>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// Takes any number of micro-batches. The bubble is exact for forward = input = weight, and with at least 2 · ranks − 1
/// micro-batches for weight <= forward <= input <= forward + weight. With so many micro-batches and equal times, the only bubble
/// is that ranks start and end at different times. Fewer run as the first ones of so many, so that
/// ranks idle in place of the missing ones.
struct Zbv : VShape {
  static constexpr std::string_view name = "zbv";
  static constexpr std::string_view limits = "needs at least one rank and one micro-batch";
  static constexpr int chunks = 2;

  static constexpr bool applies(int ranks, int micro_batches) { return ranks >= 1 && micro_batches >= 1; }
  static constexpr double bubble(int ranks, int micro_batches, Costs costs) {
    const int missing = std::max(0, 3 * ranks - 1 - 2 * micro_batches) * (micro_batches < 2 * ranks - 1);
    return (ranks - 1 + missing) * std::max(costs.forward, costs.input);
  }
  static constexpr int peak(int rank, int ranks, int micro_batches) {
    return std::min({2 * ranks, 2 * micro_batches, micro_batches + 1 + rank});
  }

  static constexpr Order order(int rank, int ranks, int micro_batches) {
    const int M = std::max(micro_batches, 2 * ranks - 1);
    Order order;
    int forward[2] = {0, 0}, input[2] = {0, 0}, weight[2] = {0, 0};
    const auto add = [&](Op what, int chunk) {
      int& micro = (what == Op::F ? forward : what == Op::I ? input : weight)[chunk];
      if (micro < micro_batches) order.push_back({what, chunk, micro});
      ++micro;
    };
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) add(Op::F, 0);
    for (int i = 0; i < rank; ++i) add(Op::F, 1), add(Op::F, 0);
    for (int i = 0; i < ranks - rank; ++i) add(Op::F, 1), add(Op::I, 1), add(Op::W, 1);
    while (forward[1] < forward[0] || forward[0] < M) {
      if (forward[0] < M) add(Op::F, 0);
      add(Op::I, 0), add(Op::W, 0);
      add(Op::F, 1), add(Op::I, 1), add(Op::W, 1);
    }
    for (int i = 0; i < rank; ++i) add(Op::I, 0), add(Op::I, 1);
    for (int i = 0; i < ranks - rank; ++i) add(Op::I, 0), add(Op::W, 0);
    while (weight[1] < input[1]) add(Op::W, 1);
    while (weight[0] < input[0]) add(Op::W, 0);
    return order;
  }
};
static_assert(Schedule<Zbv>);
/// ZBV as a value.
inline constexpr Value<Zbv> zbv;

}  // namespace weft::schedule
