// SPDX-License-Identifier: Apache-2.0
// A row-parallel product is passed directly to a norm, without the sum over tp.
// expect: not linear, but its input is Partial
// mention: Partial<weft::tp>
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

#ifdef WEFT_FAIL
void go(const Both& context, X x) {
  Sequential block(Linear<Column>(context, 8, 32), Gelu{}, Linear<Row>(context, 32, 8), LayerNorm(context, 8));
  weft::forward(block, context, x);
}
#else
void go(const Both& context, X x) {
  Sequential block(Residual(Sequential(Linear<Column>(context, 8, 32), Gelu{}, Linear<Row>(context, 32, 8))),
                   LayerNorm(context, 8));
  weft::forward(block, context, x);
}
#endif
