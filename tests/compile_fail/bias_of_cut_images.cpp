// SPDX-License-Identifier: Apache-2.0
// A parameter added to a sharding without a rule gives one error.
// expect: the bias does not lie as the rows
#include <weft/operations/functions.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Block : Module<Block> {
  Parameter<> bias;
  explicit Block(const auto& context) : bias(context, "bias", {4}, zeros) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return relu(x + bias);
#else
    return relu(to<Invariant<tp>>(x) + bias);
#endif
  }
};

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));
auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 2>> x) {
  return weft::forward(Block(context), context, x).output;
}
