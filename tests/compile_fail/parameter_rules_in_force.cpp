// SPDX-License-Identifier: Apache-2.0
// Rules for two axes that are both in force: a parameter is cut along one.
// expect: a Parameter has rules for two axes that are in force here
#include <weft/weft.hpp>

using namespace weft;
using Both = Context<Compute<Kokkos::DefaultExecutionSpace, float>, Bind<cp, Shard<cp, 0>>, Bind<tp>>;

#ifdef WEFT_FAIL
using Matrix = Parameter<Shard<tp, 0>, Shard<cp, 1>>;
#else
using Matrix = Parameter<Shard<tp, 0>, Shard<etp, 1>>;
#endif
Matrix go(const Both& context) { return Matrix(context, "weight", {4, 4}, zeros); }
