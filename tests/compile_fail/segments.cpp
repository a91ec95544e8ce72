// SPDX-License-Identifier: Apache-2.0
// Rows by ids, and operations over segments.
#include <weft/weft.hpp>

using namespace weft;

template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

// section: index_select_of_local_ids_that_are_whole
// Ids that no axis cuts count the rows of all ranks, not those of one.
// expect: index_select: an axis cuts the tensor's rows, so a rank lacks those that its ids name
// mention: index_select\(x, ids, local_ids\)
#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Replicated<tp>> ids) { return index_select(x, ids, local_ids); }
#else
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return index_select(x, ids, local_ids); }
#endif

// section: scatter_add_of_whole_ids
// Ids that every rank holds have no place beside rows that an axis cuts.
// expect: an operation over segments takes values and ids of the same axes, both cut along dim 0 or the ids whole
#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Replicated<tp>> ids) { return scatter_add(x, ids, 4); }
#else
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return scatter_add(x, ids, 4); }
#endif

// section: segment_mean_of_rows_that_tp_cuts
// Each rank has some rows of every segment, and a mean of means is no mean.
// expect: a mean, maximum or softmax over segments needs all rows of a segment on one rank
#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return segment_mean(x, ids, 4); }
#else
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return segment_mean(x, ids, 4, local_ids); }
#endif

// section: segment_softmax_of_partial
// The exponential of a term is no term of the exponential.
// expect: a maximum or softmax over segments of a Partial tensor
#ifdef WEFT_FAIL
auto go(X<float, Partial<tp>> x, X<int, Invariant<tp>> ids) { return segment_softmax(x, ids, 4); }
#else
auto go(X<float, Partial<tp>> x, X<int, Invariant<tp>> ids) { return scatter_add(x, ids, 4); }
#endif
