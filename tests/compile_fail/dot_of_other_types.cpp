// SPDX-License-Identifier: Apache-2.0
// A scalar product of two element types.
// expect: the operands hold different element types
// mention: cast<T>.x.
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(X<Invariant<tp>> x, Tensor<double, Kokkos::DefaultExecutionSpace, Invariant<tp>> y) { return dot(x, y); }
#else
auto go(X<Invariant<tp>> x, Tensor<double, Kokkos::DefaultExecutionSpace, Invariant<tp>> y) { return dot(x, cast<float>(y)); }
#endif
