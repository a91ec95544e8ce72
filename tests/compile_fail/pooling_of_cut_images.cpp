// SPDX-License-Identifier: Apache-2.0
// A window at the border of a rank's rows lacks its neighbour's.
// expect: pooling needs whole images
// mention: cut samples or channels
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 2>> x) { return max_pool2d(x); }
#else
auto go(const Over&, X<Shard<tp, 1>> x) { return max_pool2d(x); }
#endif
