// SPDX-License-Identifier: Apache-2.0
// A user's column-parallel layer returns its input's gradient without the sum over tp.
// expect: not the dual of its input .Replicated <-> Partial.: a collective is missing
// mention: Partial<weft::tp>
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using Both = decltype(std::declval<Root>().with<Invariant<dp>>(dp{}, Communicator()).with<Invariant<tp>>(tp{}, Communicator()));
using X = Tensor<float, Kokkos::DefaultExecutionSpace, Shard<dp, 0>, Invariant<tp>>;

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
void go(const Both& context, X x) {
  Sequential block(Up{{context, "weight", {32, 8}, normal(0.02)}}, Linear<Row>(context, 32, 8));
  auto step = weft::forward(block, context, x);
  weft::backward_input(block, context, std::move(step.saved), gradient_t<decltype(step.output)>(step.output.device(), {4, 8}));
}
