// SPDX-License-Identifier: Apache-2.0
// A squared error of terms is no term of the squared error.
// expect: the loss of a Partial prediction
// mention: to<Invariant<axis>>
#include <weft/operations/losses.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Partial<tp>> x, X<Invariant<tp>> y) { return mse(x, y); }
#else
auto go(const Over& context, X<Partial<tp>> x, X<Invariant<tp>> y) { return mse(to<Invariant<tp>>(context, x), y); }
#endif
