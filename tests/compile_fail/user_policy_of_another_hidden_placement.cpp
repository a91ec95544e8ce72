// SPDX-License-Identifier: Apache-2.0
// The hidden state lies in some way on the axis of the policy, and on no other that the policy could speak of.
// expect: how the hidden state lies on the policy's own axis
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
