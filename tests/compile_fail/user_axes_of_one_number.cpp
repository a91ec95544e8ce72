// SPDX-License-Identifier: Apache-2.0
// Sets of axes are bit masks, so two user-defined axes in one mesh need different numbers.
// expect: axes of your own have different numbers
#include <weft/weft.hpp>

using namespace weft;

struct replica : UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};

#ifdef WEFT_FAIL
struct twin : UserAxis<0> {
  static constexpr std::string_view name = "twin";
};
Mesh<replica, twin> both(World& world) { return Mesh<replica, twin>(world); }
#else
struct twin : UserAxis<1> {
  static constexpr std::string_view name = "twin";
};
Mesh<replica, twin> both(World& world) { return Mesh<replica, twin>(world); }
#endif
