// SPDX-License-Identifier: Apache-2.0
// The exponential of a term is no term of the exponential.
// expect: a maximum or softmax over segments of a Partial tensor
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Partial<tp>> x, X<int, Invariant<tp>> ids) { return segment_softmax(x, ids, 4); }
#else
auto go(X<float, Partial<tp>> x, X<int, Invariant<tp>> ids) { return scatter_add(x, ids, 4); }
#endif
