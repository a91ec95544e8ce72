// SPDX-License-Identifier: Apache-2.0
// Query, key and value from one matrix whose columns tp shards: each rank would take other columns.
// expect: this operation counts columns of the whole, but an axis cuts them
// mention: in its own Linear
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return slice_columns(x, 0, 4); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return slice_columns(to<Invariant<tp>>(context, x), 0, 4); }
#endif
