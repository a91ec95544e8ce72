// SPDX-License-Identifier: Apache-2.0
// A user's own layer under tensor parallelism, with a check of its gradient.
//
//   ./examples/run custom_layer
//
// GatedMlp computes (x A) ∘ (x B) C. A and B are sharded by columns, C by rows; nothing is communicated between them. Its
// backward is written by hand, once: the same code runs under tp, under sequence parallelism and on one rank.

#include <cstdio>

#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct GatedMlp {
  // The placement of each weight *if* tp is bound. On one rank the rule has no effect and no cost.
  Parameter<Shard<tp, 0>> a, b;  // [hidden / tp, width]
  Parameter<Shard<tp, 1>> c;     // [width, hidden / tp]

  GatedMlp(const auto& context, std::size_t width, std::size_t hidden)
      : a(context, "a", {hidden, width}, normal(0.5)),
        b(context, "b", {hidden, width}, normal(0.5)),
        c(context, "c", {width, hidden}, normal(0.5)) {}

  auto forward(const auto& context, const auto& x) const {
    auto inside = to<Replicated<tp>>(context, x);  // without this line the next one does not compile
    auto left = matmul(inside, a.for_operand(inside)), right = matmul(inside, b.for_operand(inside));
    auto product = times(left, right);                 // [tokens, hidden / tp]
    auto y = matmul(product, c.for_operand(product));  // Partial<tp>: a term of the sum; Residual reduces it
    return Result{y, std::tuple{x, left, right}};
  }

  template <class Context, class Saved, class G>
  auto backward(const Context& context, Saved saved, const G& g) {
    auto& [x, left, right] = saved;
    auto inside = to<Replicated<tp>>(context, x);
    c.accumulate(context, matmul_weight_gradient(g, times(left, right)));
    auto d_product = matmul_input_gradient(g, c.for_operand(left));
    auto d_left = times(d_product, right), d_right = times(d_product, left);
    a.accumulate(context, matmul_weight_gradient(d_left, inside));
    b.accumulate(context, matmul_weight_gradient(d_right, inside));
    auto dx = add(matmul_input_gradient(d_left, a.for_operand(inside)), matmul_input_gradient(d_right, b.for_operand(inside)));
    return to_layout_of<gradient_t<std::remove_reference_t<decltype(x)>>>(context,
                                                                          dx);  // the sum over tp, which is easy to forget
  }
};

int main(int argc, char** argv) {
  return run<comm::Threads>(only_run_options(argc, argv, {.ranks = 1, .threads_per_rank = 4}), [](World&) {
    const auto make = [](const auto& context) { return GatedMlp(context / "mlp", 8, 16); };

    const auto differences = testing::check_layer(make, {6, 8});
    std::printf("finite differences: %zu gradients, worst error %.1e\n", differences.compared, differences.error);
    for (const int ranks : {2, 4}) {
      const auto spread = testing::check_layer_on<tp>(ranks, make, {4, 8});
      std::printf("tp = %d against one rank: %zu values, worst error %.1e\n", ranks, spread.compared, spread.error);
    }
    const auto sequence = testing::check_layer_on<tp, Shard<tp, 0>>(2, make, {4, 8});
    std::printf("tp = 2, rows sharded (sequence parallel): %zu values, worst error %.1e\n", sequence.compared, sequence.error);
  });
}
