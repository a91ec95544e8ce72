// SPDX-License-Identifier: Apache-2.0
// A user-defined policy is for a user-defined axis: weft's axes have wrappers, which do more than sum.
// expect: UserPolicy's first template parameter must be an axis of your own
#include <weft/weft.hpp>

using namespace weft;

struct replica : UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};

#ifdef WEFT_FAIL
struct Own : UserPolicy<tp, Nesting::tensor> {};
#else
struct Own : UserPolicy<replica, Nesting::tensor> {};
#endif
