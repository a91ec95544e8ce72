// SPDX-License-Identifier: Apache-2.0
// A layer that is refused on an axis and not on one rank: check_layer_on reports it once.
// expect: this operation is not linear, but its input is Partial
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Own : Module<Own> {
  Parameter<Shard<tp, 0>> up;
  Parameter<Shard<tp, 1>> down;
  Own(const auto& context) : up(context, "up", {16, 8}, normal(1)), down(context, "down", {8, 16}, normal(1)) {}
  auto forward(const auto& x) const {
    auto y = matmul(silu(matmul(to<Replicated<tp>>(x), up)), down);
#ifdef WEFT_FAIL
    return silu(y);
#else
    return y;
#endif
  }
};
void go() {
  testing::check_layer_on<tp>(2, [](const auto& context) { return Residual(Own(context)); }, {4, 8});
}
