// SPDX-License-Identifier: Apache-2.0
// Each rank would normalise over its own columns.
// expect: softmax, log_softmax and log_sum_exp need whole rows
// mention: log_sum_exp.context, x, columns.
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return softmax(x); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) { return softmax(to<Invariant<tp>>(context, x)); }
#endif
