// SPDX-License-Identifier: Apache-2.0
// A rule for the data axis: its wrapper sums all gradients, and shards state itself.
// expect: a Parameter's rule must be for tp, cp or etp
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Matrix = Parameter<Shard<dp, 0>>;
#else
using Matrix = Parameter<>;
#endif
Matrix go(const Context<Compute<Kokkos::DefaultExecutionSpace, float>, Bind<dp>>& context) {
  return Matrix(context, "weight", {4, 4}, zeros);
}
