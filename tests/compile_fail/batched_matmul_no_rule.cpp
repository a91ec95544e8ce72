// SPDX-License-Identifier: Apache-2.0
// One operand's batch is cut, the other's is whole.
// expect: batched_matmul has no rule for these placements
// mention: the batch is cut in both
#include <weft/operations/batched.hpp>
#include <weft/weft.hpp>

using namespace weft;

template <class... P>
using X = Tensor<float, Kokkos::DefaultExecutionSpace, P...>;
using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));

#ifdef WEFT_FAIL
auto go(const Over&, X<Shard<tp, 0>> x, X<Replicated<tp>> y) { return batched_matmul(x, y); }
#else
auto go(const Over& context, X<Shard<tp, 0>> x, X<Replicated<tp>> y) { return batched_matmul(x, to<Shard<tp, 0>>(context, y)); }
#endif
