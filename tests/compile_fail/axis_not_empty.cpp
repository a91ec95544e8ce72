// SPDX-License-Identifier: Apache-2.0
// An axis is an empty type with a name: a number in its place is refused where it is written.
// expect: constraints not satisfied|use of invalid variable template
// mention: Axis
#include <weft/mesh/axis.hpp>

#ifdef WEFT_FAIL
constexpr unsigned bit = weft::axis_bit<int>;
#else
constexpr unsigned bit = weft::axis_bit<weft::tp>;
#endif
static_assert(sizeof(bit) == sizeof(unsigned));
