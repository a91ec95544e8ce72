// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows of a matrix, written to memory: pending rows (tensor/pending_rows.hpp) are computed there, others are copied.
//
//   write_rows(x, first, count, out);   // out [count, columns] = x[first : first + count]

#include <cstddef>

#include <weft/device/parallel_for.hpp>
#include <weft/tensor/pending_rows.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Writes `count` rows of x, whose rows are or were pending, from row `first` on to `out`.
template <AnyTensor X>
void write_rows(const X& x, std::size_t first, std::size_t count, typename X::value_type* out) {
  if (!x.pending()->computed()) return x.pending()->compute(first, count, out);
  const auto* const from = x.data() + first * x.columns();
  for_each_index(
      x.device(), {"copy", 2 * count * x.columns() * sizeof(typename X::value_type)}, count * x.columns(),
      KOKKOS_LAMBDA(const std::size_t i) { out[i] = from[i]; });
}

}  // namespace weft::detail
