// SPDX-License-Identifier: Apache-2.0
// Token ids have no gradient, so a layer must not return one for them.
// expect: a gradient of an input that has none
#include <weft/weft.hpp>

using namespace weft;

/// A token table.
struct Table {
  Embedding table;
  auto forward(const auto& context, const auto& ids) const { return table.forward(context, ids); }
  auto backward(const auto& context, auto saved, const auto& g) {
    weft::backward(table, context, std::move(saved), g);
#ifdef WEFT_FAIL
    return g;
#else
    return Nothing{};
#endif
  }
};

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;

auto go(const Root& context, Tensor<std::int32_t, Kokkos::DefaultExecutionSpace> ids,
        Tensor<float, Kokkos::DefaultExecutionSpace> g) {
  Sequential layer(Table{Embedding(context / "tokens", 16, 8)}, LayerNorm(context / "norm", 8));
  auto step = weft::forward(layer, context, ids);
  return backward(layer, context, std::move(step.saved), g);
}
