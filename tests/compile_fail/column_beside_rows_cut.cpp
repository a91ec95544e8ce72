// SPDX-License-Identifier: Apache-2.0
// One number per row of the whole, with a part of the rows.
// expect: times_column: the numbers of the rows lie as the rows do
// mention: Shard<axis, 0>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 0>> x, X<Invariant<tp>> v) { return times_column(x, v); }
#else
auto go(const Over& context, X<Shard<tp, 0>> x, X<Invariant<tp>> v) { return times_column(x, to<Shard<tp, 0>>(context, v)); }
#endif
