// SPDX-License-Identifier: Apache-2.0
#pragma once
// An optimizer's state for one parameter.
//
//   for (const optim::Slot& slot : optimizer.slots()) std::cout << slot.state->name() << '\n';

#include <cstddef>
#include <cstdint>
#include <vector>

#include <weft/engine/hooks.hpp>

namespace weft::optim {

/// A parameter, or this rank's part of it, and the buffers of a rule, all in its accumulate type. While a rule runs,
/// state->gradient() has accumulate_t too, and state->value() is null if a rank keeps only the master copy (stage 3 of ZeRO).
struct Slot {
  ParameterState* state = nullptr;
  weft::detail::Buffer master;  ///< the parameter in accumulate_t if that is wider than its type, otherwise null
  /// Rule::buffers buffers, initially zero; behind them the average of the parameter, if the optimizer has an ema_decay.
  std::vector<weft::detail::Buffer> kept;
  /// The records of these buffers in the model's store, if it offloads: the master if there is one, then `kept`, whose buffers
  /// are null between steps. The last is the parameter, if it stays on the device but the store may fail.
  std::vector<std::size_t> records;
  std::vector<weft::detail::Buffer> home = {};  ///< Rule::home_names: state of the whole matrix, on its home rank only

  std::uint64_t begun = 0;  ///< optimizer steps before the first gradient since this state was created: rules count from here
  std::size_t group = 0;    ///< 0: the optimizer's options; 1: the first group's, and so on
  bool whole = false;       ///< the rule transforms the whole matrix (Needs)
  bool made = false;        ///< the state exists; not for frozen parameters and those of another optimizer

  static Slot without_state(ParameterState& of) {
    Slot slot;
    slot.state = &of;
    return slot;
  }
  /// True if a step updates this slot: it has state, and this rank keeps elements with a new gradient.
  bool due() const { return made && state->kept() != 0 && state->trainable() && state->gradients().touched(); }
  /// The parameter in accumulate_t: its master copy, or its value, which a rank with only the master copy has in that type.
  void* wide_value() const { return master ? master.get() : state->value().get(); }
};

}  // namespace weft::optim

#ifdef WEFT_COMPILED
extern template class std::vector<weft::optim::Slot>;
#endif
