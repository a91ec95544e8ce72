// SPDX-License-Identifier: Apache-2.0
// In another shape the axis would cut something else.
// expect: reshape: an axis cuts a dim beyond 0
// mention: split_heads
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return reshape(x, {4, 2, 3}); }
#else
auto go(const Over&, X<Shard<tp, 1>> x) { return split_heads(x, 3); }
#endif
