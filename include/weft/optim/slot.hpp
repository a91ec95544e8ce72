// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state that an optimizer keeps for one parameter.
//
//   for (const optim::Slot& slot : optimizer.slots()) std::cout << slot.state->name() << '\n';

#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/engine/hooks.hpp>

namespace weft::optim {

/// A parameter, or the part of it that this rank keeps, and the buffers of a rule, all in its accumulate type. While a rule runs,
/// state->gradient() is in accumulate_t too, and state->value() is null if a rank keeps the master copy alone (stage 3 of ZeRO).
struct Slot {
  ParameterState* state = nullptr;
  weft::detail::Buffer master;             ///< the parameter in accumulate_t if that is wider than its type, else null
  std::vector<weft::detail::Buffer> kept;  ///< Rule::buffers of them, zero at first
  /// The records of these buffers in the model's store, if it offloads: the master if there is one, then `kept`, whose buffers
  /// are null between steps; last the parameter, if it stays on the device but the store may fail.
  std::vector<std::size_t> records;

  std::uint64_t begun = 0;  ///< steps of the optimizer before this state was made: rules count from here
  std::size_t group = 0;    ///< the optimizer's own options, or those of a group (1 is the first)
  bool whole = false;       ///< the rule is given the whole matrix (Needs)
  bool made = false;        ///< the state exists; a frozen parameter has none, nor one of another optimizer

  static Slot without_state(ParameterState& of) {
    Slot slot;
    slot.state = &of;
    return slot;
  }
  /// Whether a step updates this slot: it has state, this rank keeps elements, and their gradient was added to.
  bool due() const { return made && state->kept() != 0 && state->trainable() && state->gradients().touched(); }
};

}  // namespace weft::optim

#ifdef WEFT_COMPILED
extern template class std::vector<weft::optim::Slot>;
#endif
