// SPDX-License-Identifier: Apache-2.0
// weft's axes have degrees of their names; Degrees::user is for others.
// expect: Degrees::user is for axes of a user's own
#include <weft/weft.hpp>

using namespace weft;

struct replica : UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};

#ifdef WEFT_FAIL
Degrees degrees() { return {.user = {{tp{}, 2}}}; }
#else
Degrees degrees() { return {.tp = 2, .user = {{replica{}, 2}}}; }
#endif
