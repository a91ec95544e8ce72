// SPDX-License-Identifier: Apache-2.0
// Forward and backward of -DLAYER on a context without any axis: Linear<Column> and Linear<Row>, which can be cut over tp, and
// Linear<Whole>, which cannot. The compiler's output for the three must be the same.
#include <weft/nn/activation.hpp>
#include <weft/nn/linear.hpp>
#include <weft/nn/sequential.hpp>

using namespace weft;

using Block = Sequential<Gelu, LAYER>;
using Here = Context<Compute<Kokkos::DefaultHostExecutionSpace, float>>;
using Hidden = Tensor<float, Kokkos::DefaultHostExecutionSpace>;  // [tokens, width]

Hidden step(Block& block, const Here& context, const Hidden& x, const Hidden& gradient) {
  auto result = weft::forward(block, context, x);
  return weft::backward(block, context, std::move(result.saved), gradient);
}
