// SPDX-License-Identifier: Apache-2.0
// Rows that went to experts are not the tokens that a mask goes by.
// expect: but the rows of this tensor are cut over an axis that does not cut tokens
// mention: the dense mesh
#include <weft/weft.hpp>

using namespace weft;

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
