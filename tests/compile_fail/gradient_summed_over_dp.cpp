// SPDX-License-Identifier: Apache-2.0
// A gradient that the layer itself sums over dp: DataParallel would add it up once more.
// expect: Invariant on the data axis, which sums it once more: leave it Partial
#include <weft/weft.hpp>

using namespace weft;
using Exec = Kokkos::DefaultExecutionSpace;
using Data = Context<Compute<Exec, float>, Bind<dp>>;

void go(const Data& context, Parameter<>& gain, const Tensor<float, Exec, Shard<dp, 0>>& g) {
#ifdef WEFT_FAIL
  gain.accumulate(context, to<Invariant<dp>>(context, sum_rows(g)));
#else
  gain.accumulate(context, sum_rows(g));
#endif
}
