// SPDX-License-Identifier: Apache-2.0
// GELU of a term of a sum is not a term of the GELU.
// expect: not linear, but its input is Partial
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(const Both& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) {
  return Gelu{}.forward(context, y);
}
#else
auto go(const Both& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) {
  return Gelu{}.forward(context, to<Invariant<tp>>(context, y));
}
#endif
