// SPDX-License-Identifier: Apache-2.0
// A layer within a Sequential forgets its gradient: the layers before it would get none.
// expect: returned Nothing (for an input of real numbers|while that of another returned a gradient)
#include <weft/weft.hpp>

using namespace weft;

/// Twice its input.
struct Twice {
  auto forward(const auto&, const auto& x) const { return Result{add(x, x), Nothing{}}; }
#ifdef WEFT_FAIL
  auto backward(const auto&, const auto&, const auto&) { return Nothing{}; }
#else
  auto backward(const auto&, const auto&, const auto& g) { return add(g, g); }
#endif
};

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;
using X = Tensor<float, Kokkos::DefaultExecutionSpace>;

auto go(const Root& context, X x) {
  Sequential layer(Gelu{}, Twice{}, Gelu{});
  auto step = weft::forward(layer, context, x);
  return backward(layer, context, std::move(step.saved), x);
}
