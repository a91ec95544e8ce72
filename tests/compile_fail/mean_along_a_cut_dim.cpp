// SPDX-License-Identifier: Apache-2.0
// A mean along a dim of which each rank has a part.
// expect: mean, max and softmax along a dim need all of it on one rank
// mention: to<Invariant<axis>>
#include <weft/operations/along_dim.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return mean<1>(x); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return mean<1>(to<Invariant<tp>>(context, x)); }
#endif
