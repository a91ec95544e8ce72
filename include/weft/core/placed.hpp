// SPDX-License-Identifier: Apache-2.0
#pragma once
// A mark on types that describe the placement of their elements on axes, such as a Tensor with placements. Collectives on raw
// memory refuse such arguments without including tensors: the collective would change the elements' placement but not the type
// that states it.

#include <weft/core/standard.hpp>

namespace weft {

/// True for a Tensor with placements.
template <class X>
inline constexpr bool is_placed = false;

}  // namespace weft
