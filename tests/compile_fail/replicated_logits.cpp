// SPDX-License-Identifier: Apache-2.0
// Whole logits on every rank of tp: the softmax would count each term tp times (Megatron-LM#7452).
// expect: logits sharded along the vocabulary
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
auto go(const Both& context, X logits,
        Tensor<std::int32_t, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Replicated<tp>> targets) {
  return cross_entropy(context, logits, targets, 8);
}
#else
auto go(const Both& context, X logits,
        Tensor<std::int32_t, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Replicated<tp>> targets) {
  return cross_entropy(context, to<Shard<tp, 1>>(context, logits), targets, 8);
}
#endif
