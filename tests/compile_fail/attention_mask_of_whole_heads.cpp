// SPDX-License-Identifier: Apache-2.0
// Each rank would use another part of a mask for heads that all ranks have.
// expect: attention's mask is whole, or cut along dim 0 as the heads are
// mention: to<Replicated<axis>>
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Invariant<tp>> x, X<float, Shard<tp, 0>> bias) { return attention(x, x, x, {}, bias); }
#else
auto go(X<float, Shard<tp, 0>> x, X<float, Shard<tp, 0>> bias) { return attention(x, x, x, {}, bias); }
#endif
