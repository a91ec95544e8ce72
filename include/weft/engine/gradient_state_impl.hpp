// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/gradient_state.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/engine/gradient_state.hpp>

namespace weft::detail {

WEFT_INLINE GradientState::Addition GradientState::add(unsigned whole, unsigned unreduced, unsigned sharded, unsigned later) {
  touched_ = true;
  if (fresh_) whole_ = loose_ = 0;
  whole &= ~sharded;
  const bool elsewhere = (whole & unreduced_ & later) != 0;
  const bool zero_first = (whole_ & unreduced & ~unreduced_ & later) != 0;
  whole |= whole_;
  unreduced_ |= unreduced;
  loose_ |= fresh_ ? unreduced : unreduced_;  // a second addition is no part of the tree
  whole_ = whole;
  if (zero_first) fresh_ = false;
  return {elsewhere, zero_first};
}

WEFT_INLINE std::optional<GradientTerm> GradientState::leave_term(Buffer outside) {
  Buffer sum = exchange_layer_buffer(std::move(outside));
  if (std::exchange(fresh_, true)) return {};
  return GradientTerm{std::move(sum), std::exchange(unreduced_, 0u), whole_, loose_};
}

WEFT_INLINE std::vector<Buffer> GradientState::end_term(Buffer outside) {
  std::vector<Buffer> all = std::exchange(terms_, {});
  all.push_back(exchange_layer_buffer(std::move(outside)));
  if (std::exchange(fresh_, true)) return {};
  return all;
}

}  // namespace weft::detail
