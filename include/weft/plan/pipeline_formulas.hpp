// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bubble of a layout's pipeline and the activations that it keeps, by the formulas of the schedules, for any number of
// chunks.
//
//   const detail::PipelineFormulas pipeline = detail::pipeline_formulas(layout, forward_s, backward_s);   // of a whole rank

#include <algorithm>

#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/pipeline/schedule/zero_bubble.hpp>
#include <weft/plan/candidate.hpp>

namespace weft::plan::detail {

/// How long a rank waits if all others are as busy as it, and how many micro-batches' activations of one of its stages the first
/// rank keeps: the formulas of the schedules.
struct PipelineFormulas {
  double bubble = 0;
  int first = 1, last = 1;
};
inline PipelineFormulas pipeline_formulas(const Candidate& c, double forward, double backward) {
  const schedule::Costs costs{forward / c.chunks, backward / 2 / c.chunks, backward / 2 / c.chunks};
  const auto by = [&]<class S>(S*) {
    return PipelineFormulas{S::bubble(c.pp, c.micro_batches, costs), S::peak(0, c.pp, c.micro_batches),
                            S::peak(c.pp - 1, c.pp, c.micro_batches)};
  };
  switch (c.order) {
    case PipelineOrder::one_forward_one_backward: return by(static_cast<schedule::OneForwardOneBackward*>(nullptr));
    case PipelineOrder::zero_bubble_h1: return by(static_cast<schedule::ZeroBubbleH1*>(nullptr));
    case PipelineOrder::zbv: return by(static_cast<schedule::Zbv*>(nullptr));
    default: break;
  }
  const int missing = std::max(0, c.pp - c.micro_batches);
  const auto peak = [&](int rank) {
    return std::min(schedule::detail::interleaved_warm_up(rank, c.pp, c.chunks, c.micro_batches) + 1, c.micro_batches * c.chunks);
  };
  return {(c.pp - 1 + (c.chunks - 1) * missing) * (costs.forward + costs.backward()), peak(0), peak(c.pp - 1)};
}

}  // namespace weft::plan::detail
