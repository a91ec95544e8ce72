// SPDX-License-Identifier: Apache-2.0
// Two rules for one axis: a rank holds one piece.
// expect: a Parameter has two rules for one axis
#include <weft/weft.hpp>

using namespace weft;

#ifdef WEFT_FAIL
using Matrix = Parameter<Shard<tp, 0>, Shard<tp, 1>>;
#else
using Matrix = Parameter<Shard<tp, 0>>;
#endif
Matrix go(const Context<Compute<Kokkos::DefaultExecutionSpace, float>, Bind<tp>>& context) {
  return Matrix(context, "weight", {4, 4}, zeros);
}
