// SPDX-License-Identifier: Apache-2.0
// Each rank gathers other rows, so the gradient of the table is a sum.
// expect: index_select: an axis cuts the ids, and the tensor is Invariant on it
// mention: to<Replicated<axis>>
#include <weft/operations/index_select.hpp>
#include <weft/weft.hpp>

using namespace weft;

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
