// SPDX-License-Identifier: Apache-2.0
// The mean of an image that an axis cuts is refused once.
// expect: pooling needs whole images
#include <weft/operations/functions.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Block : Module<Block> {
  Parameter<> bias;
  explicit Block(const auto& context) : bias(context, "bias", {4}, zeros) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return relu(global_avg_pool2d(x));
#else
    return relu(global_avg_pool2d(to<Invariant<tp>>(x)));
#endif
  }
};

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));
auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Shard<tp, 2>> x) {
  return weft::forward(Block(context), context, x).output;
}
