// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for parallel/fsdp/settings.hpp, inline when weft is header-only, else compiled once in the library weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/parallel/fsdp/settings.hpp>

namespace weft::detail {

WEFT_INLINE DataType ShardSettings::kept_gradient_type(const ParameterState& state) const {
  // A sum in float16 overflows at a 2^16-th of the loss scale that float takes, so more steps would be skipped.
  if (!gradient) return rules.keeps_values && rounds && state.type() != DataType::float16 ? state.type() : state.gradient_type();
  if (*gradient != state.type() && *gradient != state.gradient_type())
    throw_error<UsageError>({"ModelOptions::numerics.gradient is ", name_of(*gradient), ": gradients of parameters in ",
                             name_of(state.type()), " are kept in ", name_of(state.gradient_type()),
                             state.type() == state.gradient_type() ? "" : " or ",
                             state.type() == state.gradient_type() ? "" : name_of(state.type())});
  return *gradient;
}

}  // namespace weft::detail
