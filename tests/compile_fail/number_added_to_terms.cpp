// SPDX-License-Identifier: Apache-2.0
// Every rank would add the number to its term.
// expect: adding a number to a Partial tensor
// mention: to<Invariant<axis>>
#include <weft/operations/arithmetic.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x) { return x + 1; }
#else
auto go(const Over& context, X<Partial<tp>> x) { return to<Invariant<tp>>(context, x) + 1; }
#endif
