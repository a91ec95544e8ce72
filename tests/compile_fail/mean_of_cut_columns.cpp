// SPDX-License-Identifier: Apache-2.0
// The mean of a part of the columns is not the mean.
// expect: mean_columns needs whole rows
// mention: to<Invariant<axis>>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return mean_columns(x); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return mean_columns(to<Invariant<tp>>(context, x)); }
#endif
