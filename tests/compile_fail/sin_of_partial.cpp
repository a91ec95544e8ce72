// SPDX-License-Identifier: Apache-2.0
// The sine of a sum is no sum of sines.
// expect: this operation is not linear, but its input is Partial
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Partial<tp>> x) { return sin(x); }
#else
auto go(X<Invariant<tp>> x) { return sin(x); }
#endif
