// SPDX-License-Identifier: Apache-2.0
// A quotient of sums is not the sum of quotients.
// expect: divide: these placements do not divide
// mention: Partial divisor
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Replicated<tp>> x, X<Partial<tp>> y) { return divide(x, y); }
#else
auto go(const Over&, X<Partial<tp>> x, X<Replicated<tp>> y) { return divide(x, y); }
#endif
