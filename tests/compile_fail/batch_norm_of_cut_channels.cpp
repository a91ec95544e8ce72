// SPDX-License-Identifier: Apache-2.0
// Channels that tp shards, with a gain for all of them.
// expect: BatchNorm: an axis cuts the channels of x and not the parameters
// mention: BatchNorm<Shard<tp, 0>>
#include <weft/nn/batch_norm.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<tp, 1>> x, BatchNorm<> norm) { return norm.forward(context, x).output; }
#else
auto go(const Over& context, X<Shard<tp, 1>> x, BatchNorm<Shard<tp, 0>> norm) { return norm.forward(context, x).output; }
#endif
