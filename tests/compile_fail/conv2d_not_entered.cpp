// SPDX-License-Identifier: Apache-2.0
// Output channels that tp cuts, of an image that has not entered the parallel region.
// expect: conv2d has no rule for these placements
// mention: x is Replicated and w cut along its outputs
#include <weft/operations/convolution.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Invariant<tp>> x, X<Shard<tp, 0>> w) { return conv2d(x, w); }
#else
auto go(const Over& context, X<Invariant<tp>> x, X<Shard<tp, 0>> w) { return conv2d(to<Replicated<tp>>(context, x), w); }
#endif
