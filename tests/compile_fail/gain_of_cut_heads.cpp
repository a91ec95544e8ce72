// SPDX-License-Identifier: Apache-2.0
// A gain of all heads sharded by a rule, with heads that tp shards: each rank would have another part of it.
// expect: times_heads: the gain of all heads is whole on every axis
// mention: parameter.for_operand.x.
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x, const Parameter<Shard<tp, 0>>& gain) { return times_heads(x, gain.for_operand(x)); }
#else
auto go(const Over&, X<Shard<tp, 1>> x, const Parameter<>& gain) { return times_heads(x, gain.for_operand(x)); }
#endif
