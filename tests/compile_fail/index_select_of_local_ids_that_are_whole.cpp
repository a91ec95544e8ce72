// SPDX-License-Identifier: Apache-2.0
// Ids that no axis cuts count the rows of all ranks, not those of one.
// expect: index_select: an axis cuts the tensor's rows, so a rank lacks those that its ids name
// mention: index_select\(x, ids, local_ids\)
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Replicated<tp>> ids) { return index_select(x, ids, local_ids); }
#else
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return index_select(x, ids, local_ids); }
#endif
