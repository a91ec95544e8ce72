// SPDX-License-Identifier: Apache-2.0
// The hidden placement must be on the policy's axis, and on no other.
// expect: is the placement of the hidden state on the policy's axis
#include <weft/weft.hpp>

using namespace weft;

struct replica : UserDataAxis<0> {
  static constexpr std::string_view name = "replica";
};

#ifdef WEFT_FAIL
struct Own : UserPolicy<replica, Nesting::data, Invariant<tp>> {};
#else
struct Own : UserPolicy<replica, Nesting::data, Invariant<replica>> {};
#endif
