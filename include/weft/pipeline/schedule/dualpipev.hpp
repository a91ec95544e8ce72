// SPDX-License-Identifier: Apache-2.0
#pragma once
// DualPipeV (DeepSeek's DualPipe cut in half, github.com/deepseek-ai/DualPipe): two stages per rank, laid out as a V. In the
// steady state a forward of one stage overlaps a backward of the other, so that one computes while the other communicates.
//
//   ModelOptions{.pipeline = {.schedule = schedule::dualpipev}}

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// Needs at least 2 · ranks micro-batches. The bubble is exact for forward = input = weight; for other costs it is the paper's
/// figure, and the simulation differs a little. Without overlap a pair takes the sum of its members' times.
struct DualPipeV : VShape {
  static constexpr std::string_view name = "dualpipev";
  static constexpr std::string_view limits = "needs micro-batches >= 2 * pp";
  static constexpr int chunks = 2;

  static constexpr bool applies(int ranks, int micro_batches) { return ranks >= 1 && micro_batches >= 2 * ranks; }
  static constexpr double bubble(int ranks, int, Costs costs) {
    return (ranks - 1) * (costs.forward + 2 * costs.backward() - 3 * costs.weight);
  }
  /// The same for an executor that runs the members of a pair one after the other, and sends the result of the first at once.
  /// Exact for forward = input = weight, and for input >= 2 · weight with weight = forward.
  static constexpr double bubble_in_turns(int ranks, Costs costs) {
    const double longer = std::max(0.0, costs.input - costs.weight);
    return (ranks - 1) * (costs.forward + longer) + std::max(0.0, (ranks - 1) * longer - costs.forward);
  }
  static constexpr int peak(int, int ranks, int) { return 2 * ranks + 1; }

  static constexpr Order order(int rank, int ranks, int micro_batches) {
    Order order;
    int forwards[2] = {0, 0}, backwards[2] = {0, 0};
    std::vector<Action> waiting;  // weight gradients, first in, first out
    std::size_t taken = 0;
    const auto forward = [&](int chunk) { order.push_back({Op::F, chunk, forwards[chunk]++}); };
    const auto backward = [&](int chunk) { order.push_back({Op::B, chunk, backwards[chunk]++}); };
    const auto input = [&](int chunk) {
      waiting.push_back({Op::W, chunk, backwards[chunk]});
      order.push_back({Op::I, chunk, backwards[chunk]++});
    };
    const auto weight = [&] { order.push_back(waiting[taken++]); };
    const auto overlapped = [&](int forward_chunk) {
      forward(forward_chunk);
      order.back().with_next = true;
      backward(1 - forward_chunk);
    };
    for (int i = 0; i < 2 * (ranks - rank - 1); ++i) forward(0);
    for (int i = 0; i < rank + 1; ++i) forward(0), forward(1);
    for (int i = 0; i < ranks - rank - 1; ++i) input(1), weight(), forward(1);
    for (int i = 0; i < micro_batches - 2 * ranks + rank + 1; ++i) {
      if (i == 0 && rank == ranks - 1) forward(0), backward(1);
      else overlapped(0);
      overlapped(1);
    }
    for (int i = 0; i < ranks - rank - 1; ++i) backward(1), overlapped(1);
    bool split = false;
    for (int i = 0; i < rank + 1; ++i) {
      if (i == (rank + 1) / 2 && rank % 2 == 1) split = true;
      split ? input(1) : backward(1);
      if (i == (rank + 1) / 2 && rank % 2 == 0) split = true;
      split ? input(0) : backward(0);
    }
    for (int i = 0; i < ranks - rank - 1; ++i) weight(), input(0);
    while (taken < waiting.size()) weight();
    return order;
  }
};
static_assert(Schedule<DualPipeV>);
/// DualPipeV as a value.
inline constexpr Value<DualPipeV> dualpipev;

}  // namespace weft::schedule
