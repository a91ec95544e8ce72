// SPDX-License-Identifier: Apache-2.0
#pragma once
// A mark on types that say how their elements lie on axes, such as a Tensor with placements. Collectives on raw memory refuse
// such arguments without knowing tensors: the collective would change the placement of the elements but not the type that states
// it.

#include <weft/core/standard.hpp>

namespace weft {

template <class X>
inline constexpr bool is_placed = false;

}  // namespace weft
