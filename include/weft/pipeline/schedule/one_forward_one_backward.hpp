// SPDX-License-Identifier: Apache-2.0
#pragma once
// 1F1B: one forward, one backward (Narayanan et al., PipeDream-Flush, arXiv:2006.09503; the default of Megatron-LM and of weft).
// The bubble is that of GPipe, but a rank holds at most as many activations as there are stages from it to the end.
//
//   ModelOptions{.pipeline = {.schedule = schedule::one_forward_one_backward}}

#include <algorithm>
#include <string_view>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// Takes any number of micro-batches, also fewer than stages. Gradients are accumulated in micro-batch order.
struct OneForwardOneBackward : Loop {
  static constexpr std::string_view name = "1f1b";
  static constexpr std::string_view limits = "needs at least one rank and one micro-batch";
  static constexpr int chunks = 1;

  static constexpr bool applies(int ranks, int micro_batches) { return ranks >= 1 && micro_batches >= 1; }
  static constexpr double bubble(int ranks, int, Costs costs) { return (ranks - 1) * (costs.forward + costs.backward()); }
  static constexpr int peak(int rank, int ranks, int micro_batches) { return std::min(ranks - rank, micro_batches); }

  static constexpr Order order(int rank, int ranks, int micro_batches) {
    Order order;
    const int warm_up = std::min(ranks - 1 - rank, micro_batches);
    for (int micro = 0; micro < warm_up; ++micro) order.push_back({Op::F, 0, micro});
    for (int micro = 0; micro < micro_batches; ++micro) {
      if (warm_up + micro < micro_batches) order.push_back({Op::F, 0, warm_up + micro});
      order.push_back({Op::B, 0, micro});
    }
    return order;
  }
};
static_assert(Schedule<OneForwardOneBackward>);
/// 1F1B as a value, the default.
inline constexpr Value<OneForwardOneBackward> one_forward_one_backward;

}  // namespace weft::schedule
