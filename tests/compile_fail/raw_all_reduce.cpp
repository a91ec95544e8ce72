// SPDX-License-Identifier: Apache-2.0
// A collective on the memory of a placed tensor: the sum is done, but the type is still Partial, so the next `to` would add
// again.
// expect: a collective on the memory of a tensor with placements.*to<Placement>\(context, x\).*raw\(x\)
// mention: Partial<weft::tp>
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using OnTp = decltype(std::declval<Root>().with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Partial<tp>>;

#ifdef WEFT_FAIL
auto go(const OnTp& context, X x) {
  context.comm(tp{}).all_reduce(x);
  return to<Invariant<tp>>(context, x);
}
#else
auto go(const OnTp& context, X x) {
  context.comm(tp{}).all_reduce(raw(x), Reduction::max);  // spelled out
  return to<Invariant<tp>>(context, x);
}
#endif
