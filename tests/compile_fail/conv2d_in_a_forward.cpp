// SPDX-License-Identifier: Apache-2.0
// A mistake in the middle of a forward gives one error, independent of later uses of its result.
// expect: conv2d has no rule for these placements
// mention: x is Replicated and w cut along its outputs
#include <weft/operations/convolution.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/pooling.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Block : Module<Block> {
  Parameter<Shard<tp, 0>> w;
  explicit Block(const auto& context) : w(context, "w", {4, 3, 3, 3}, normal(1)) {}
  auto forward(const auto& x) const {
#ifdef WEFT_FAIL
    return max_pool2d(relu(conv2d(x, w) * 2));
#else
    return max_pool2d(relu(conv2d(to<Replicated<tp>>(x), w) * 2));
#endif
  }
};

using Over =
    decltype(std::declval<Context<Compute<Kokkos::DefaultExecutionSpace, float>>>().with<Invariant<tp>>(tp{}, Communicator()));
auto go(const Over& context, Tensor<float, Kokkos::DefaultExecutionSpace, Invariant<tp>> x) {
  return weft::forward(Block(context), context, x).output;
}
