// SPDX-License-Identifier: Apache-2.0
// Joined with the dim before it, a cut dim is no cut of the joined one.
// expect: flatten: an axis cuts an inner one of these dims
// mention: transpose
#include <weft/operations/shapes.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 2>> x) { return flatten<1, 2>(x); }
#else
auto go(const Over&, X<Shard<tp, 2>> x) { return flatten<1, 2>(transpose<1, 2>(x)); }
#endif
