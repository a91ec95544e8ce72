// SPDX-License-Identifier: Apache-2.0
// A condition for all columns, with the columns of one rank.
// expect: where: an axis cuts the condition and not the tensors
// mention: greater
#include <weft/operations/functions.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x, X<Invariant<tp>> y) { return where(greater(y, 0), x, x); }
#else
auto go(const Over&, X<Shard<tp, 1>> x, X<Invariant<tp>>) { return where(greater(x, 0), x, x); }
#endif
