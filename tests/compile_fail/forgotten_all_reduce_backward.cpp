// SPDX-License-Identifier: Apache-2.0
// A user's column-parallel layer returns its input's gradient without the sum over tp.
// expect: not the dual of its input .Replicated <-> Partial.: a collective is missing
// mention: Partial<weft::tp>
#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct Up {
  Parameter<Shard<tp, 0>> weight;
  auto forward(const auto& context, const auto& x) const {
    auto inside = to<Replicated<tp>>(context, x);
    return Result{matmul(inside, weight.for_operand(inside)), inside};
  }
  template <class Context, class Inside, class G>
  auto backward(const Context& context, Inside x, const G& g) {
    weight.accumulate(context, matmul_weight_gradient(g, x));
    auto dx = matmul_input_gradient(g, weight.for_operand(x));
#ifdef WEFT_FAIL
    return dx;
#else
    return to<Invariant<tp>>(context, dx);
#endif
  }
};
void go() {
  testing::check_layer_on<tp, Invariant<tp>>(2,
                                             [](const auto& context) {
                                               return Up{{context, "weight", {32, 8}, normal(0.02)}};
                                             },
                                             {4, 8});
}
