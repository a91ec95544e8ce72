// SPDX-License-Identifier: Apache-2.0
// The exponential of a term is not a term of the exponential.
// expect: this operation is not linear, but its input is Partial
// mention: to<Invariant<axis>>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x) { return exp(x); }
#else
auto go(const Over& context, X<Partial<tp>> x) { return exp(to<Invariant<tp>>(context, x)); }
#endif
