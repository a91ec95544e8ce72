// SPDX-License-Identifier: Apache-2.0
// A scalar product of sums is not the sum of scalar products.
// expect: dot: both lie alike, or one is Partial
// mention: to_layout_of<X>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x) { return dot(x, x); }
#else
auto go(const Over&, X<Partial<tp>> x, X<Replicated<tp>> y) { return dot(x, y); }
#endif
