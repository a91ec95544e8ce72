// SPDX-License-Identifier: Apache-2.0
// The second layer of a RecomputeInput forgets its gradient: the first would be trained on none.
// expect: returned Nothing (for an input of real numbers|while that of another returned a gradient)
#include <weft/weft.hpp>

using namespace weft;

/// Twice its input.
struct Twice {
  auto forward(const auto&, const auto& x) const { return Result{add(x, x), x}; }
#ifdef WEFT_FAIL
  auto backward(const auto&, const auto&, const auto&) { return Nothing{}; }
#else
  auto backward(const auto&, const auto&, const auto& g) { return add(g, g); }
#endif
};

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using X = Tensor<float, Kokkos::DefaultExecutionSpace>;

auto go(const Root& context, X x) {
  RecomputeInput layer(Gelu{}, Twice{});
  auto step = layer.forward(context, x);
  return backward(layer, context, std::move(step.saved), x);
}
