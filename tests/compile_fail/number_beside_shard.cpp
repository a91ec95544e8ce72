// SPDX-License-Identifier: Apache-2.0
// A number that each rank applies to its own part, without a sum of its gradient.
// expect: times_scalar: the number lies as the tensor
// mention: to<Replicated<axis>>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x, X<Invariant<tp>> s) { return times_scalar(x, s); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x, X<Invariant<tp>> s) { return times_scalar(x, to<Replicated<tp>>(context, s)); }
#endif
