// SPDX-License-Identifier: Apache-2.0
#pragma once
// The mark of a type that says how its elements lie on axes: a Tensor with placements sets it. Collectives on raw memory refuse such
// arguments without knowing tensors: they would change how the elements lie, and the type would go on saying what it said.

#include <weft/core/standard.hpp>

namespace weft {

template <class X>
inline constexpr bool is_placed = false;

}  // namespace weft
