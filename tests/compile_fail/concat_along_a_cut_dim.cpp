// SPDX-License-Identifier: Apache-2.0
// Along a sharded dim the ranks' parts would be interleaved.
// expect: slice, chunk and concat count along a dim of the whole, but an axis cuts it
// mention: to<Invariant<axis>>
#include <weft/operations/parts.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return concat<1>(x, x); }
#else
auto go(const Over&, X<Shard<tp, 1>> x) { return concat<0>(x, x); }
#endif
