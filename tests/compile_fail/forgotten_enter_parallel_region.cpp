// SPDX-License-Identifier: Apache-2.0
// A column-parallel product without entering the parallel region: the gradient of x would lose a sum.
// expect: enter the parallel region first
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(const Parameter<Shard<tp, 0>>& weight, X x) { return matmul(x, weight.for_operand(x)); }
#else
auto go(const Both& context, const Parameter<Shard<tp, 0>>& weight, X x) {
  auto inside = to<Replicated<tp>>(context, x);
  return matmul(inside, weight.for_operand(inside));
}
auto use(const Both& context, const Parameter<Shard<tp, 0>>& weight, X x) { return go(context, weight, x); }
#endif
