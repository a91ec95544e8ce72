// SPDX-License-Identifier: Apache-2.0
// Each rank would divide by its own term of a row's sum.
// expect: divide_column: the divisors are Partial
// mention: to<Invariant<axis>>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 1>> x) { return divide_column(x, sum_columns(x)); }
#else
auto go(const Over& context, X<Shard<tp, 1>> x) {
  return divide_column(x, to<Replicated<tp>>(context, to<Invariant<tp>>(context, sum_columns(x))));
}
#endif
