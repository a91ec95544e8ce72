// SPDX-License-Identifier: Apache-2.0
// Only tp's parts of the vocabulary are summed: with another axis each rank would take the softmax of its own columns.
// expect: no other axis may cut the vocabulary
// mention: to<Invariant<axis>>
#include <weft/weft.hpp>

using namespace weft;

struct columns : UserAxis<0> {
  static constexpr std::string_view name = "columns";
};
using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Over = decltype(std::declval<Root>().with<Invariant<columns>>(columns{}, Communicator()));
template <class T, class... P>
using X = Tensor<T, Kokkos::DefaultExecutionSpace, P...>;

#ifdef WEFT_FAIL
auto go(const Over& context, X<float, Shard<columns, 1>> logits, X<std::int32_t, Invariant<columns>> targets) {
  return cross_entropy(context, logits, targets, 8);
}
#else
auto go(const Over& context, X<float, Shard<columns, 1>> logits, X<std::int32_t, Invariant<columns>> targets) {
  return cross_entropy(context, to<Invariant<columns>>(context, logits), targets, 8);
}
#endif
