// SPDX-License-Identifier: Apache-2.0
// One gain for all heads, whose columns tp cuts: its gradient is a term of the sum over tp, and not this rank's piece of a cut
// parameter.
// expect: gradient is Shard on an axis .* on which the parameter has no such rule
// mention: Shard<weft::tp, 0>
#include <weft/weft.hpp>

using namespace weft;
using Exec = Kokkos::DefaultExecutionSpace;
using Both = Context<Compute<Exec, float>, Bind<dp>, Bind<tp>>;
using ByHead = Tensor<float, Exec, Shard<dp, 0>, Shard<tp, 1>>;

void go(const Both& context, Parameter<>& temperature, Parameter<Shard<tp, 0>>& own, const ByHead& g) {
#ifdef WEFT_FAIL
  const auto sums = sum_rows(g);  // [columns / tp], Partial<dp>, Shard<tp, 0>
  temperature.accumulate(context, sums);
  (void)own;
#else
  own.accumulate(context, sum_rows(g));  // a gain for each column, cut as the columns are
  (void)temperature;
#endif
}
