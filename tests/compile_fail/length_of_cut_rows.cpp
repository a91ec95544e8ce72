// SPDX-License-Identifier: Apache-2.0
// The same under sequence parallelism, requested with the tensor with sharded rows.
// expect: rows of a sequence are cut over cp or tp in this tensor
// mention: positions_of\(context, x\)
#include <weft/context/global_index.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Spread = decltype(std::declval<Root>().with<Shard<dp, 0>>(dp{}, Communicator()).with<Shard<tp, 0>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Shard<tp, 0>>;
using WholeRows = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Replicated<tp>>;

#ifdef WEFT_FAIL
std::size_t go(const Spread& context, const X& x) { return sequence_length(context, x); }
#else
std::size_t go(const Spread& context, const WholeRows& x) { return sequence_length(context, x); }
#endif
