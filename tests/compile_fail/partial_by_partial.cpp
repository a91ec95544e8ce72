// SPDX-License-Identifier: Apache-2.0
// A product of sums is not the sum of products.
// expect: matmul of Partial by Partial
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
using Y = Tensor<float, Kokkos::DefaultExecutionSpace, Partial<tp>>;
auto go(Y a, Y b) { return matmul(a, b); }
#else
using Y = Tensor<float, Kokkos::DefaultExecutionSpace, Partial<tp>>;
using Z = Tensor<float, Kokkos::DefaultExecutionSpace, Replicated<tp>>;
auto go(Y a, Z b) { return matmul(a, b); }
#endif
