// SPDX-License-Identifier: Apache-2.0
// An axis is an empty type with a name. A number instead is refused at its place.
// expect: constraints not satisfied|use of invalid variable template
// mention: Axis
#include <weft/mesh/axis.hpp>

#ifdef WEFT_FAIL
constexpr unsigned bit = weft::axis_bit<int>;
#else
constexpr unsigned bit = weft::axis_bit<weft::tp>;
#endif
static_assert(sizeof(bit) == sizeof(unsigned));
