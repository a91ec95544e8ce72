// SPDX-License-Identifier: Apache-2.0
// Ids that every rank holds have no place beside rows that an axis cuts.
// expect: an operation over segments takes values and ids of the same axes, both cut along dim 0 or the ids whole
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Replicated<tp>> ids) { return scatter_add(x, ids, 4); }
#else
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return scatter_add(x, ids, 4); }
#endif
