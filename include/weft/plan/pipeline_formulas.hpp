// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bubble of a layout's pipeline and the number of activations that it keeps. The formulas are those of the schedules, for any
// number of chunks.
//
//   const detail::PipelineFormulas pipeline = detail::pipeline_formulas(layout, forward_s, backward_s);   // of a whole rank

#include <algorithm>
#include <array>

#include <weft/pipeline/schedule/dualpipev.hpp>
#include <weft/pipeline/schedule/gpipe.hpp>
#include <weft/pipeline/schedule/interleaved.hpp>
#include <weft/pipeline/schedule/one_forward_one_backward.hpp>
#include <weft/pipeline/schedule/zbv.hpp>
#include <weft/pipeline/schedule/zero_bubble.hpp>
#include <weft/plan/candidate.hpp>

namespace weft::plan::detail {

/// Activations of one stage that a rank holds at one time, counted in micro-batches: `left` by a forward, and `waiting` with an
/// input gradient but no weight gradient. If forward keeps only its inputs, `waiting` activations are recomputed in full.
struct Held {
  int left = 0, waiting = 0;
};

struct PipelineFormulas {
  double bubble = 0;  ///< seconds that a rank waits if all ranks are equally busy
  /// On the first and on the last rank: when most micro-batches are in flight, and when most weight gradients wait.
  std::array<Held, 2> first, last;
  int ends = 1;  ///< micro-batches in flight in the model's last stage, if the last rank holds it
};

/// The times are for one micro-batch and all stages of a rank.
inline PipelineFormulas pipeline_formulas(const Candidate& c, double forward, double backward) {
  namespace own = schedule::detail;
  // Full recomputation precedes the input gradient.
  const double weight = c.kept == Kept::inputs ? std::max(0.0, backward - forward) / 2 : backward / 2;
  const schedule::Costs costs{forward / c.chunks, (backward - weight) / c.chunks, weight / c.chunks};
  const int P = c.pp, M = c.micro_batches, V = c.chunks;
  const auto whole = [&](double bubble, int first, int last) { return PipelineFormulas{bubble, {{{first}}}, {{{last}}}}; };
  switch (c.order) {
    case PipelineOrder::one_forward_one_backward: {
      using S = schedule::OneForwardOneBackward;
      return whole(S::bubble(P, M, costs), S::peak(0, P, M), S::peak(P - 1, P, M));
    }
    case PipelineOrder::gpipe: {
      using S = schedule::GPipe;
      PipelineFormulas all = whole(S::bubble(P, M, costs), S::peak(0, P, M), S::peak(P - 1, P, M));
      all.ends = M;
      return all;
    }
    case PipelineOrder::interleaved:
      return whole(own::interleaved_bubble(P, V, M, costs), own::interleaved_peak(0, P, V, M),
                   own::interleaved_peak(P - 1, P, V, M));
    case PipelineOrder::zero_bubble_h1:
    case PipelineOrder::interleaved_zero_bubble: {  // rank r computes weight gradients r micro-batches late
      const int peak = own::zero_bubble_peak(P, V, M), late = std::min(P, M * V);
      return {own::zero_bubble_bubble(P, V, M, costs), {{{peak - 1, 1}}}, {{{peak - late, late}}}, std::min(P, M)};
    }
    case PipelineOrder::zbv: {
      using S = schedule::Zbv;
      const int late = std::max(1, std::min(2 * P - 1, 2 * (M - P) + 1));  // on the last rank, at the end
      return {S::bubble(P, M, costs), {{{S::peak(0, P, M) - 1, 1}}}, {{{S::peak(P - 1, P, M) - 1, 1}, {0, late}}}};
    }
    case PipelineOrder::dualpipev: break;
  }
  using S = schedule::DualPipeV;
  const int peak = S::peak(0, P, M);
  return {S::bubble_in_turns(P, costs), {{{peak, 0}, {peak - 2, 1}}}, {{{peak, 0}, {0, P}}}};
}

}  // namespace weft::plan::detail
