// SPDX-License-Identifier: Apache-2.0
// The rows of one rank of tp are no whole sample, so that its ids would count other rows on another number of ranks.
// expect: index_select: an axis cuts the tensor's rows, so a rank lacks those that its ids name
// mention: to<Shard<dp, 0>>\(ids\)
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return index_select(x, ids); }
#else
auto go(X<float, Shard<dp, 0>> x, X<int, Shard<dp, 0>> ids) { return index_select(x, ids); }
#endif
