// SPDX-License-Identifier: Apache-2.0
// Each rank has some rows of every segment, and a mean of means is no mean.
// expect: a mean, maximum or softmax over segments needs all rows of a segment on one rank
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return segment_mean(x, ids, 4); }
#else
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return segment_mean(x, ids, 4, local_ids); }
#endif
