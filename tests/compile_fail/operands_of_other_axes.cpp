// SPDX-License-Identifier: Apache-2.0
// A tensor made without tp, with one whose type has tp.
// expect: the operands name different axes
// mention: make both in one context
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(X<Invariant<tp>> x, X<> v) { return times_column(x, v); }
#else
auto go(X<Invariant<tp>> x, X<Invariant<tp>> v) { return times_column(x, v); }
#endif
