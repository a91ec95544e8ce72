// SPDX-License-Identifier: Apache-2.0
// Shapes, parts and indices of tensors that an axis cuts.
#include <weft/operations/cut_pieces.hpp>
#include <weft/operations/fourier.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/index_select.hpp>
#include <weft/operations/moves.hpp>
#include <weft/operations/parts.hpp>
#include <weft/operations/shapes.hpp>
#include <weft/weft.hpp>

using namespace weft;

// section: concat_along_a_cut_dim
// Along a sharded dim the ranks' parts would be interleaved.
// expect: slice, chunk and concat count along a dim of the whole, but an axis cuts it
// mention: to<Invariant<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return concat<1>(x, x); }
#else
auto go(const Over&, X<Shard<tp, 1>> x) { return concat<0>(x, x); }
#endif

// section: cumsum_along_a_cut_dim
// The running sum of a part lacks the parts before it.
// expect: pad, flip, roll, cumsum, sort, topk and Fourier transforms need all of a dim on one rank, but an axis cuts it
// mention: to<Invariant<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Shard<tp, 1>> x) { return cumsum<1>(x); }
#else
auto go(X<Shard<tp, 1>> x) { return cumsum<0>(x); }
#endif

// section: transform_of_a_cut_dim
// Each rank would transform its piece.
// expect: pad, flip, roll, cumsum, sort, topk and Fourier transforms need all of a dim on one rank, but an axis cuts it
// mention: to<Shard<axis, 1>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<dx>>(dx{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<dx, 2>> x) { return rfft<2>(x); }
#else
auto go(const Over& context, X<Shard<dx, 2>> x) { return rfft<2>(to<Shard<dx, 1>>(context, x)); }
#endif

// section: move_of_a_cut_over_tp
// The all-to-all is between dims of space.
// expect: to<Shard> from a Shard along another dim is an all-to-all, over a domain axis
// mention: to<Invariant<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<tp, 1>> x) { return to<Shard<tp, 2>>(context, x); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return to<Shard<tp, 2>>(context, to<Invariant<tp>>(context, x)); }
#endif

// section: pieces_of_another_dim
// The move is between dims 2 and 1.
// expect: to<Shard<axis, dim>>\(x, pieces\) moves a cut from one dim to another, with the pieces of these dims
// mention: cut_pieces<Shard<axis, dim>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<dx>>(dx{}, Communicator()));

struct Moved : Module<Moved> {
  explicit Moved(const auto&) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return tanh(to<Shard<dx, 1>>(x, cut_pieces<Shard<dx, 3>>(x)));
#else
    return tanh(to<Shard<dx, 1>>(x, cut_pieces<Shard<dx, 2>>(x)));
#endif
  }
};
auto go(const Over& context, X<Shard<dx, 2>> x) { return weft::forward(Moved(context), context, x).output; }

// section: move_of_a_cut_around_another
// dy cuts the pieces of dx: without them in one order the elements would be in another order than on one rank.
// expect: to: an axis that the mesh names later cuts the same dim
// mention: to<Shard<dy, 3>>.x. before to<Shard<dx, 2>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over = decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>()
                          .with<Invariant<dx>>(dx{}, Communicator())
                          .with<Invariant<dy>>(dy{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<dx, 1>, Shard<dy, 1>> x) { return to<Shard<dx, 2>>(context, x); }
#else
auto go(const Over& context, X<Shard<dx, 1>, Shard<dy, 1>> x) { return to<Shard<dx, 2>>(context, to<Shard<dy, 3>>(context, x)); }
#endif

// section: gather_of_a_cut_around_another
// The pieces of dx, which dy cuts, would be joined in another order than on one rank.
// expect: to: an axis that the mesh names later cuts the same dim
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over = decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>()
                          .with<Invariant<dx>>(dx{}, Communicator())
                          .with<Invariant<dy>>(dy{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, X<Shard<dx, 1>, Shard<dy, 1>> x) { return to<Invariant<dx>>(context, x); }
#else
auto go(const Over& context, X<Shard<dx, 1>, Shard<dy, 1>> x) {
  return to<Invariant<dx>>(context, to<Invariant<dy>>(context, x));
}
#endif

// section: pad_twice
// A dim that is named twice would be padded twice.
// expect: pad: a dim is named twice: write pad<2, 3>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Replicated<tp>> x) { return pad<1, 2, 1>(x, 1, 1); }
#else
auto go(X<Replicated<tp>> x) { return pad<1, 2>(x, 1, 1); }
#endif

// section: flatten_of_an_inner_cut
// Joined with the dim before it, a cut dim is no cut of the joined one.
// expect: flatten: an axis cuts an inner one of these dims
// mention: transpose
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 2>> x) { return flatten<1, 2>(x); }
#else
auto go(const Over&, X<Shard<tp, 2>> x) { return flatten<1, 2>(transpose<1, 2>(x)); }
#endif

// section: index_select_of_invariant_rows
// Each rank gathers other rows, so the gradient of the table is a sum.
// expect: index_select: an axis cuts the ids, and the tensor is Invariant on it
// mention: to<Replicated<axis>>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Invariant<tp>> x, with_scalar_t<X<Shard<tp, 0>>, int> ids) { return index_select(x, ids); }
#else
auto go(const Over& context, X<Invariant<tp>> x, with_scalar_t<X<Shard<tp, 0>>, int> ids) {
  return index_select(to<Replicated<tp>>(context, x), ids);
}
#endif

// section: index_select_of_rows_that_tp_cuts
// The rows of one rank of tp are no whole sample, so that its ids would count other rows on another number of ranks.
// expect: index_select: an axis cuts the tensor's rows, so a rank lacks those that its ids name
// mention: to<Shard<dp, 0>>\(ids\)
template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<float, Shard<tp, 0>> x, X<int, Shard<tp, 0>> ids) { return index_select(x, ids); }
#else
auto go(X<float, Shard<dp, 0>> x, X<int, Shard<dp, 0>> ids) { return index_select(x, ids); }
#endif

// section: mask_of_expert_rows
// Rows that went to experts are not the tokens that a mask goes by.
// expect: but the rows of this tensor are cut over an axis that does not cut tokens
// mention: the dense mesh
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, const Dropout& dropout, X<Shard<edp, 0>, Shard<ep, 0>, Shard<etp, 0>> x) {
  return dropout.forward(context, x);
}
#else
auto go(const Over& context, const Dropout& dropout, X<Shard<tp, 0>> x) { return dropout.forward(context, x); }
#endif

// section: mask_of_a_dim_cut_twice
// A dim that two axes cut, of which a piece's place is not the one of either.
// expect: one axis may cut the columns, along dim 1, domain axes the dims of images
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over = decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>()
                          .with<Invariant<tp>>(tp{}, Communicator())
                          .with<Invariant<dx>>(dx{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over& context, const Dropout& dropout, X<Shard<tp, 1>, Shard<dx, 1>> x) { return dropout.forward(context, x); }
#else
auto go(const Over& context, const Dropout& dropout, X<Shard<tp, 1>, Shard<dx, 2>> x) { return dropout.forward(context, x); }
#endif

// section: merge_samples_of_cut_positions
// Positions that another axis than cp or one domain axis cuts do not become rows.
// expect: merge_samples of .samples, positions, .... that another axis than cp or one domain axis cuts
// mention: shape.cpp:
struct Block : Module<Block> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return exp(merge_samples(x));
#else
    return exp(merge_samples(to<Invariant<tp>>(x)));
#endif
  }
};

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 1>> x) {
  return weft::forward(Block(), context, x).output;
}

// section: reshape_of_cut_columns
// In another shape the axis would cut something else.
// expect: reshape: an axis cuts a dim beyond 0
// mention: split_heads
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return reshape(x, {4, 2, 3}); }
#else
auto go(const Over&, X<Shard<tp, 1>> x) { return split_heads(x, 3); }
#endif

// section: slice_of_cut_columns
// Query, key and value from one matrix whose columns tp shards: each rank would take other columns.
// expect: this operation counts columns of the whole, but an axis cuts them
// mention: in its own Linear
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return slice_columns(x, 0, 4); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return slice_columns(to<Invariant<tp>>(context, x), 0, 4); }
#endif

// section: split_samples_of_cut_rows
// Rows that tp cuts (sequence parallelism) are no whole samples.
// expect: split_samples of rows that tp cuts
// mention: shape.cpp:
struct Block : Module<Block> {
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return merge_samples(exp(split_samples(x)));
#else
    return merge_samples(exp(split_samples(to<Invariant<tp>>(x))));
#endif
  }
};

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Shard<tp, 0>>(tp{}, Communicator()));

auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 0>> x) {
  return weft::forward(Block(), context, x).output;
}

// section: maximum_of_an_invariant_row
// The gradient of a row that each rank repeats over its part would lose the sum over the ranks.
// expect: the two tensors are placed differently
// mention: to_layout_of
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Shard<dp, 0>> x, X<Invariant<dp>> row) { return maximum(x, row); }
#else
auto go(X<Shard<dp, 0>> x, X<Replicated<dp>> row) { return maximum(x, row); }
#endif

// section: where_of_another_cut
// The same of a value beside a condition that is cut.
// expect: where: an axis cuts the condition and not the tensors
// mention: Replicated<axis>
template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(X<Shard<dp, 0>> x, X<Invariant<dp>> row) { return where(x > 0, row, row); }
#else
auto go(X<Shard<dp, 0>> x, X<Replicated<dp>> row) { return where(x > 0, row, row); }
#endif
