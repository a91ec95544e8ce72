// SPDX-License-Identifier: Apache-2.0
// A Partial term added to a whole one: the whole one would be added on every rank.
// expect: the two terms are placed differently
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(X x, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) { return add(x, y); }
#else
auto go(const Both& context, X x, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Partial<tp>> y) {
  return add(x, to_layout_of<X>(context, y));
}
#endif
