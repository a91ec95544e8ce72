// SPDX-License-Identifier: Apache-2.0
// A norm of heads that are terms of a sum; of heads that an axis cuts it is right.
// expect: this operation is not linear, but its input is Partial
// mention: head_norm_of_partial.cpp:
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, X<Partial<tp>> x, const HeadRmsNorm& norm) { return norm.forward(context, x).output; }
#else
auto go(const Over& context, X<Shard<tp, 1>> x, const HeadRmsNorm& norm) { return norm.forward(context, x).output; }
#endif
