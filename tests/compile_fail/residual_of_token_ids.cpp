// SPDX-License-Identifier: Apache-2.0
// A residual around the token table would add its rows to token ids.
// expect: Residual adds a layer's output to its input, and this input is not Real
#include <weft/weft.hpp>

using namespace weft;

using Root = Context<Compute<Kokkos::DefaultExecutionSpace, float>>;

auto go(const Root& context, Tensor<std::int32_t, Kokkos::DefaultExecutionSpace> ids,
        Tensor<float, Kokkos::DefaultExecutionSpace> g) {
  Embedding table(context / "tokens", 16, 8);
  LayerNorm norm(context / "norm", 8);
#ifdef WEFT_FAIL
  Residual layer(Sequential(table, norm));
#else
  Sequential layer(table, Residual(norm));
#endif
  auto step = weft::forward(layer, context, ids);
  return backward(layer, context, std::move(step.saved), g);
}
