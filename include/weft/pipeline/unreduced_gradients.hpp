// SPDX-License-Identifier: Apache-2.0
#pragma once
// What gradients owe over an axis, as all its ranks know it. What a layer adds to depends on its data where a user writes it so: the rank
// that did not touch a parameter has a term of its sum too, zero, and sums in the same order as the others.

#include <cstdint>
#include <span>
#include <vector>

#include <weft/comm/communicator.hpp>
#include <weft/layer/parameter.hpp>

namespace weft::detail {

[[noreturn]] WEFT_COLD inline void refuse_ways(const ParameterState& state, std::string_view axis, bool owes) {
  throw_error<UnreducedGradientError>({"the ranks of ", axis, " took different ways: the gradient of ", state.name(), " is whole on some and ", owes ? "a term of a sum" : "missing",
                          " on others; what is the same on every rank (Invariant) must be computed by every rank"});
}

/// Makes a gradient's unreduced axes and `touched` the same on every rank of `comm`, whose axis has this bit: what a rank owes over other axes
/// too, since after the sum over this one all have the same. One small all-reduce; throws UnreducedGradientError on all of its ranks for a gradient
/// that is whole on some and not on others.
template <class Device>
void agree_on_unreduced(const Communicator& comm, Device& device, const Unit& unit, unsigned axis) {
  if (comm.size() == 1 || unit.parameters.empty()) return;
  std::vector<std::int32_t> flags;  // whether some rank: touched it, owes a term over tp, over cp, has it whole, lacks it
  flags.reserve(unit.parameters.size() * 5);
  for (const ParameterState* state : unit.parameters) {
    const GradientState& gradients = state->gradients();
    const bool whole = gradients.whole(axis);
    flags.insert(flags.end(), {gradients.touched(), gradients.unreduced(tp{}), gradients.unreduced(cp{}), whole, !whole});
  }
  comm.all_reduce(flags, Reduction::max);
  const std::int32_t* flag = flags.data();
  for (ParameterState* state : unit.parameters) {
    const unsigned unreduced = (flag[1] ? axis_bit<tp> : 0u) | (flag[2] ? axis_bit<cp> : 0u);
    GradientState& gradients = state->gradients();
    gradients.set_touched(flag[0]);
    if (flag[3] && flag[4]) refuse_ways(*state, comm.axis(), unreduced & axis);
    flag += 5;
    // A term that this rank lacks is zero: what is whole is the first rank's.
    if ((unreduced & axis & ~gradients.unreduced()) && (gradients.fresh() || (state->info().later & axis))) zero_gradient(device, *state);
    gradients.mark_unreduced(unreduced);
  }
}

/// Whether some rank touched a parameter: the ranks of `comm` have the same parameters, in the same order.
template <class Stages>
void agree_on_touched(const Communicator& comm, Stages& stages) {
  if (comm.size() == 1) return;
  std::vector<std::int32_t> flags;
  stages.for_each_state([&](ParameterState& state) { flags.push_back(state.gradients().touched()); });
  comm.all_reduce(flags, Reduction::max);
  const std::int32_t* flag = flags.data();
  stages.for_each_state([&](ParameterState& state) { state.gradients().set_touched(*flag++); });
}

}  // namespace weft::detail
