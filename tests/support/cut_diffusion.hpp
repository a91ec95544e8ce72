// SPDX-License-Identifier: Apache-2.0
#pragma once
// The diffusion model of examples/fields over domain axes, in pieces of different extents, and its comparison with one rank, on
// any backend.
//
//   weft_test::check_diffusion<comm::Threads>({.ranks = 4, .degrees = {.dx = 2, .dy = 2}});

#include "cut_stack.hpp"
#include "examples/fields/diffusion.hpp"
#include "examples/fields/samples.hpp"
#include "golden_numbers.hpp"

namespace weft_test {

/// A rank's pieces of pictures of side x side points. Pieces differ by one row if the ranks do not divide them.
inline ::fields::Pictures pictures_of(std::size_t first, std::size_t count, const auto& mesh, std::size_t side = 6) {
  const auto space = ::fields::space_of(mesh);
  const auto begin = [&](std::size_t dim, std::size_t more) { return side * (space[dim].rank + more) / space[dim].ranks; };
  const std::size_t rows = begin(0, 1) - begin(0, 0), columns = begin(1, 1) - begin(1, 0);
  ::fields::Pictures batch;
  const auto points = batch[::fields::picture].resize(count, {1, rows, columns});
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t sample = first + i / (rows * columns), row = begin(0, 0) + i / columns % rows,
                      column = begin(1, 0) + i % columns;
    points[i] = float(golden_number(1000, (sample * side + row) * side + column));
  }
  golden_values(batch[::fields::remaining].resize(count, {1, 1, 1}), 1001, first, 1);
  golden_values(batch[::fields::spread].resize(count, {1, 1, 1}), 1002, first, 1);
  golden_values(batch[::fields::moment].resize(count, {::fields::time_features}), 1003, first, ::fields::time_features);
  return batch;
}

template <comm::Backend Backend>
void check_diffusion(const UNetLayout& layout) {
  check_cut_stack<::fields::Diffusion<double>, Backend>(
      layout, {.width = 8, .blocks = 2},
      [](std::size_t first, std::size_t count, const auto& mesh) { return pictures_of(first, count, mesh, 7); });
}
template <comm::Backend Backend>
void check_diffusion_ranks(int world) {
  check_cut_ranks(world, [](const UNetLayout& layout) { check_diffusion<Backend>(layout); });
}

}  // namespace weft_test
