// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for engine/live_parameters.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/core/text.hpp>
#include <weft/engine/live_parameters.hpp>

namespace weft::detail {

WEFT_INLINE LiveParameters& live_parameters() {
  static auto* const all = new LiveParameters;  // never ended: a model may be a static object
  return *all;
}

WEFT_COLD WEFT_INLINE LiveParameter::LiveParameter(const ParameterState& state) : state_(&state) {
  LiveParameters& all = live_parameters();
  const std::scoped_lock lock(all.mutex);
  all.threads.emplace(state_, std::this_thread::get_id());
}
WEFT_COLD WEFT_INLINE LiveParameter::~LiveParameter() {
  LiveParameters& all = live_parameters();
  const std::scoped_lock lock(all.mutex);
  all.threads.erase(state_);
}

}  // namespace weft::detail
