// SPDX-License-Identifier: Apache-2.0
#pragma once
// The agreement of an axis' ranks on which gradients are unreduced over it. In a user's layer it may depend on the data which
// parameters are touched: a rank that did not touch a parameter has a term of its sum, too, zero, and reduces in the same order
// as the others.

#include <cstdint>
#include <vector>

#include <weft/autograd/parameter.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/core/text.hpp>

namespace weft::detail {

[[noreturn]] WEFT_COLD inline void refuse_ways(const ParameterState& state, std::string_view axis, bool partial) {
  throw_error<UnreducedGradientError>({"the ranks of ", axis, " took different ways: the gradient of ", state.name(),
                                       " is whole on some and ", partial ? "a term of a sum" : "missing",
                                       " on others; every rank must compute values that are the same on every rank (Invariant)"});
}

/// Throws UnreducedGradientError for a gradient that is still a term of a sum after a step.
WEFT_COLD inline void require_reduced(const ParameterState& state) {
  if (state.gradients().unreduced() == 0) return;
  throw_error<UnreducedGradientError>({"the gradient of ", state.name(), " is still unreduced over ",
                                       names_of_axes(state.info(), state.gradients().unreduced()),
                                       " after the step: no wrapper sums it"});
}

/// Throws UsageError if a layer's backward left out the gradient of a parameter, or did not look whether it is the first.
WEFT_COLD inline void require_added(const ParameterState& state) {
  const GradientState& gradients = state.gradients();
  if (gradients.ignored())
    throw_error<UsageError>(
        {"the gradient of ", state.name(),
         ": a layer's backward opened it and did not look at `first`, so it always overwrites, which loses the "
         "gradients of other micro-batches, or always adds, also to an old one: write `open.first ? g : sum + g`, "
         "or call accumulate(context, g)"});
  if (gradients.expected() && state.trainable() && !gradients.touched())
    throw_error<UsageError>(
        {"the gradient of ", state.name(),
         ": a layer's forward used the parameter, its backward has run, and no rank has added a gradient in the "
         "first step: add it in backward, or backward_weight, with accumulate(context, g), or freeze the parameter"});
}

/// Makes a gradient's unreduced axes and `touched` the same on every rank of `comm`; `axis` is the bit of its axis. Other
/// unreduced axes are made the same, too, since after the sum over this axis all ranks have the same gradient. One small
/// all-reduce. Throws UnreducedGradientError on all ranks of `comm` for a gradient that is whole on some and not on others.
template <class Device>
void agree_on_unreduced(const Communicator& comm, Device& device, const Unit& unit, unsigned axis) {
  if (comm.size() == 1 || unit.parameters.empty()) return;
  // The flags of each parameter: some rank touched it; has it whole; lacks it; has a gradient unreduced over tp, over cp, over
  // each user-defined axis.
  const auto for_each_term = [](const ParameterState& state, auto&& f) {
    f(axis_bit<tp>);
    f(axis_bit<cp>);
    for (const auto& [bit, name] : state.info().user_axes) f(bit);
  };
  std::vector<std::int32_t> flags;
  flags.reserve(unit.parameters.size() * 5);
  for (const ParameterState* state : unit.parameters) {
    const GradientState& gradients = state->gradients();
    const bool whole = gradients.whole(axis);
    flags.insert(flags.end(), {gradients.touched(), whole, !whole});
    for_each_term(*state, [&](unsigned bit) { flags.push_back((gradients.unreduced() & bit) != 0); });
  }
  comm.all_reduce(flags, Reduction::max);
  const std::int32_t* flag = flags.data();
  for (ParameterState* state : unit.parameters) {
    GradientState& gradients = state->gradients();
    gradients.set_touched(*flag++);
    const bool differ = flag[0] && flag[1];
    flag += 2;
    unsigned unreduced = 0;
    for_each_term(*state, [&](unsigned bit) { unreduced |= *flag++ ? bit : 0u; });
    if (differ) refuse_ways(*state, comm.axis(), unreduced & axis);
    // The term of a rank that added nothing is zero; a whole gradient counts as the first rank's term.
    if ((unreduced & axis & ~gradients.unreduced()) && (gradients.fresh() || (state->info().later & axis)))
      zero_gradient(device, *state);
    gradients.mark_unreduced(unreduced);
  }
}

/// Marks a parameter as touched if some rank touched it. The ranks of `comm` have the same parameters in the same order.
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

#ifdef WEFT_COMPILED
namespace weft::detail {
extern template void agree_on_unreduced(const Communicator&, Device<Kokkos::DefaultHostExecutionSpace>&, const Unit&, unsigned);
}  // namespace weft::detail
#endif
