// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions for operations/products.hpp, inline when weft is header-only, else compiled once in the library
// weft::compiled.

#include <weft/core/inline.hpp>
#include <weft/operations/products.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE MatmulExtents matmul_extents(NamedOperand left, NamedOperand right, bool l_second, bool r_second) {
  const Shape &l = left.shape(), &r = right.shape();
  MatmulExtents e{l_second ? l.columns() : l.rows(), r_second ? r.columns() : r.rows(), l_second ? l.rows() : l.columns()};
  if (const std::size_t k = r_second ? r.rows() : r.columns(); e.k != k)
    throw_error<ShapeError>({call_text("matmul", {left, right}), ": the summed dims differ, ", e.k, " and ", k});
  e.product = Shape{e.m, e.n};
  e.product.set_sharding(0, l.sharding(l_second ? l.rank() - 1 : 0)).set_sharding(1, r.sharding(r_second ? r.rank() - 1 : 0));
  return e;
}

WEFT_OUT_OF_LINE WEFT_INLINE void require_gradient_size(const Shape& gradient, std::size_t size, const ParameterState& state) {
  if (size != state.size())
    throw_error<ShapeError>({"gradient ", gradient.text(), " of parameter ", state.name(), " ", state.local().text()});
}

}  // namespace weft::detail
