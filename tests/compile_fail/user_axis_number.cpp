// SPDX-License-Identifier: Apache-2.0
// The number of an axis is a bit of a mask, in which weft's axes use some.
// expect: UserAxis's number must be from 0 to 24
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
struct own : UserAxis<25> {
  static constexpr std::string_view name = "own";
};
#else
struct own : UserAxis<24> {
  static constexpr std::string_view name = "own";
};
#endif
