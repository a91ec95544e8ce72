// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPipe: all forwards, then all backwards (Huang et al., arXiv:1811.06965). The simplest order; it holds the activations of all
// micro-batches at once.
//
//   ModelOptions{.pipeline = {.schedule = schedule::gpipe}}

#include <string_view>

#include <weft/pipeline/schedule/table.hpp>

namespace weft::schedule {

/// Takes any number of micro-batches. Gradients are accumulated in micro-batch order.
struct GPipe : Loop {
  static constexpr std::string_view name = "gpipe";
  static constexpr std::string_view limits = "needs at least one rank and one micro-batch";
  static constexpr int chunks = 1;

  static constexpr bool applies(int ranks, int micro_batches) { return ranks >= 1 && micro_batches >= 1; }
  static constexpr double bubble(int ranks, int, Costs costs) { return (ranks - 1) * (costs.forward + costs.backward()); }
  static constexpr int peak(int, int, int micro_batches) { return micro_batches; }

  static constexpr Order order(int, int, int micro_batches) {
    Order order;
    for (int micro = 0; micro < micro_batches; ++micro) order.push_back({Op::F, 0, micro});
    for (int micro = 0; micro < micro_batches; ++micro) order.push_back({Op::B, 0, micro});
    return order;
  }
};
static_assert(Schedule<GPipe>);
/// GPipe as a value.
inline constexpr Value<GPipe> gpipe;

}  // namespace weft::schedule
