// SPDX-License-Identifier: Apache-2.0
// A parameter that tp shards along dim 0 gets a gradient sharded along dim 1.
// expect: is cut by its rule Shard<axis, dim>, but its gradient is not that Shard
#include <weft/weft.hpp>

using namespace weft;
using Exec = Kokkos::DefaultExecutionSpace;
using Both = Context<Compute<Exec, float>, Bind<dp>, Bind<tp>>;

#ifdef WEFT_FAIL
constexpr int dim = 1;
#else
constexpr int dim = 0;
#endif
void go(const Both& context, Parameter<Shard<tp, 0>>& weight, const Tensor<float, Exec, Partial<dp>, Shard<tp, dim>>& g) {
  weight.accumulate(context, g);
}
