// SPDX-License-Identifier: Apache-2.0
// A user's own layer under tensor parallelism, with a check of its gradient.
//
//   ./examples/run custom_layer
//
// GatedMlp computes (silu(x A) ∘ (x B)) C. A and B are sharded by columns, C by rows; nothing is communicated between them. Only
// its forward is written: the same code runs under tp, under sequence parallelism and on one rank. FusedMlp is the same layer
// with an operation whose gradient is written by hand, which backward computes in one pass over its operands.

#include <cstdio>

#include <weft/testing/check_layer.hpp>
#include <weft/weft.hpp>

using namespace weft;

struct GatedMlp : Module<GatedMlp> {
  // The placement of each weight *if* tp is bound. On one rank the rule has no effect and no cost.
  Parameter<Shard<tp, 0>> a, b;  // [hidden / tp, width]
  Parameter<Shard<tp, 1>> c;     // [width, hidden / tp]

  GatedMlp(const auto& context, std::size_t width, std::size_t hidden)
      : a(context, "a", {hidden, width}, normal(0.5)),
        b(context, "b", {hidden, width}, normal(0.5)),
        c(context, "c", {width, hidden}, normal(0.5)) {}

  auto forward(const auto& x) const {
    auto inside = to<Replicated<tp>>(x);                       // without this line the next one does not compile
    auto gated = silu(matmul(inside, a)) * matmul(inside, b);  // [tokens, hidden / tp]
    return to_layout_of(x, matmul(gated, c));                  // a term of the sum on each rank; here the terms are added
  }
};

// silu(a) ∘ b. Derived, the gradient would store silu(a) too; this one computes it again.
struct Gate : Primitive<Gate> {
  auto forward(const auto& a, const auto& b) const { return times(silu(a), b); }
  auto gradient(const auto& g, const auto& a, const auto& b) const {
    return std::tuple(silu_gradient(a, times(g, b)), times(g, silu(a)));
  }
};

struct FusedMlp : Module<FusedMlp> {
  GatedMlp of;
  FusedMlp(const auto& context, std::size_t width, std::size_t hidden) : of(context, width, hidden) {}
  auto forward(const auto& x) const {
    auto inside = to<Replicated<tp>>(x);
    return to_layout_of(x, matmul(Gate()(matmul(inside, of.a), matmul(inside, of.b)), of.c));
  }
};

template <class Layer>
void check(const char* name) {
  const auto make = [](const auto& context) { return Layer(context / "mlp", 8, 16); };

  const auto differences = testing::check_layer(make, {6, 8});
  std::printf("%s, finite differences: %zu gradients, worst error %.1e\n", name, differences.compared, differences.error);
  for (const int ranks : {2, 4}) {
    const auto spread = testing::check_layer_on<tp>(ranks, make, {4, 8});
    std::printf("tp = %d against one rank: %zu values, worst error %.1e\n", ranks, spread.compared, spread.error);
  }
  const auto sequence = testing::check_layer_on<tp, Shard<tp, 0>>(2, make, {4, 8});
  std::printf("tp = 2, rows sharded (sequence parallel): %zu values, worst error %.1e\n", sequence.compared, sequence.error);
}

int main(int argc, char** argv) {
  return run<comm::Threads>(only_run_options(argc, argv, {.ranks = 1, .threads_per_rank = 4}), [](World&) {
    check<GatedMlp>("GatedMlp");
    check<FusedMlp>("FusedMlp");
  });
}
