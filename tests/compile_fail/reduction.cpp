// SPDX-License-Identifier: Apache-2.0
// Reductions along a cut dim.
#include <weft/operations/along_dim.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

// section: mean_along_a_cut_dim
// A mean along a dim of which each rank has a part.
// expect: mean, max and softmax along a dim need all of it on one rank
// mention: to<Invariant<axis>>
#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return mean<1>(x); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return mean<1>(to<Invariant<tp>>(context, x)); }
#endif

// section: mean_of_cut_columns
// The mean of a part of the columns is not the mean.
// expect: mean_columns needs whole rows
// mention: to<Invariant<axis>>
#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return mean_columns(x); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return mean_columns(to<Invariant<tp>>(context, x)); }
#endif

// section: softmax_of_cut_columns
// Each rank would normalise over its own columns.
// expect: softmax, log_softmax and log_sum_exp need whole rows
// mention: log_sum_exp.context, x, columns.
#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return softmax(x); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return softmax(to<Invariant<tp>>(context, x)); }
#endif
