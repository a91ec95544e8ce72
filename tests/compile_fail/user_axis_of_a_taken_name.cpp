// SPDX-License-Identifier: Apache-2.0
// Messages and rank orders refer to axes by name, so a user-defined axis must not have the name of one of weft's.
// expect: an axis of your own has the name of another axis
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
struct own : UserAxis<0> {
  static constexpr std::string_view name = "tp";
};
Mesh<dp, own> both(World& world) { return Mesh<dp, own>(world); }
#else
struct own : UserAxis<0> {
  static constexpr std::string_view name = "own";
};
Mesh<dp, own> both(World& world) { return Mesh<dp, own>(world); }
#endif
