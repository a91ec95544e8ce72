// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of a computation in parts of nearly equal size, one after the other, so that only one part's intermediate values need
// memory (LossOptions::chunks).
//
//   for_each_part(rows, parts, [&](std::size_t first, std::size_t count) { use(rows_of(x, first, count)); });

#include <algorithm>
#include <cstddef>

#include <weft/tensor/around.hpp>
#include <weft/tensor/tensor.hpp>

namespace weft::detail {

/// Calls f(first, count) for each of at most `parts` parts of the rows, in order. The parts depend on both numbers only.
template <class F>
void for_each_part(std::size_t rows, std::size_t parts, F&& f) {
  const std::size_t size = (rows + parts - 1) / parts;
  for (std::size_t first = 0; first < rows; first += size) f(first, std::min(size, rows - first));
}

/// Rows first ... first + count - 1 of x [rows, ...], in x's memory.
template <AnyTensor X>
X rows_of(const X& x, std::size_t first, std::size_t count) {
  return view_of<X>(x, with_extent(x.shape(), 0, count), first * Around(x.shape(), 0).inner);
}

}  // namespace weft::detail
