// SPDX-License-Identifier: Apache-2.0
// A gradient that is equal on every rank would be counted once per rank.
// expect: would count it several times
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
void go(const Both& context, Parameter<>& gain, Tensor<float, Kokkos::DefaultExecutionSpace, Partial<dp>, Replicated<tp>> g) {
  gain.accumulate(context, g);
}
#else
void go(const Both& context, Parameter<>& gain, Tensor<float, Kokkos::DefaultExecutionSpace, Partial<dp>, Replicated<tp>> g) {
  gain.accumulate(context, to<Invariant<tp>>(context, g));
}
#endif
