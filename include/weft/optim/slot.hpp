// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an optimizer keeps of a parameter.

#include <cstddef>
#include <vector>

#include <weft/layer/hooks.hpp>

namespace weft::optim {

/// A parameter, or what this rank keeps of it, and the buffers that a rule keeps beside it, all in its accumulate type. While a
/// rule runs state->gradient() is in accumulate_t too, and state->value() is null where a rank keeps the master copy alone (stage
/// 3 of ZeRO).
struct Slot {
  ParameterState* state = nullptr;
  weft::detail::Buffer master;             ///< parameter in accumulate_t where that is wider than the parameter's type, else null
  std::vector<weft::detail::Buffer> kept;  ///< Rule::buffers of them, zero at first
  /// Where these lie in the model's store, if it offloads: the master if there is one, then `kept`, whose buffers are null
  /// between steps; and last the parameter, where that stays on the device but the store may fail.
  std::vector<std::size_t> records;

  /// Whether a step has something to do here: this rank keeps elements, and their gradient was added to.
  bool due() const { return state->kept() != 0 && state->gradients().touched(); }
};

}  // namespace weft::optim

#ifdef WEFT_COMPILED
extern template class std::vector<weft::optim::Slot>;
#endif
