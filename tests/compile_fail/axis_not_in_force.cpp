// SPDX-License-Identifier: Apache-2.0
// A layer requests a communicator that no wrapper has bound.
// expect: this axis is not in force here
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
int go(const Root& context) { return context.comm(tp{}).size(); }
#else
int go(const Both& context) { return context.comm(tp{}).size(); }
#endif
