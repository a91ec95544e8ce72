// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pieces of a rank of the samples of flow with which the models of grids are compared with PyTorch (field_golden.hpp) and
// with one rank.
//
//   check_golden<Fno, dx, dy>("fno", layouts, config, [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
//     return flow_of<2>(first, count, mesh);
//   });

#include <array>
#include <cstddef>
#include <cstdint>

#include "examples/fields/flow.hpp"
#include "golden_numbers.hpp"

namespace weft_test {

/// A rank's pieces of samples of 8 x 8 or 8 x 8 x 8 points.
template <int Dims>
::fields::Flow flow_of(std::size_t first, std::size_t count, const auto& mesh) {
  constexpr std::size_t side = 8;
  const auto space = ::fields::space_of(mesh);
  std::array<std::size_t, 3> begin{}, extent{1, 1, 1};
  for (std::size_t dim = 0; dim < Dims; ++dim) extent[dim] = side / space[dim].ranks, begin[dim] = extent[dim] * space[dim].rank;
  ::fields::Flow batch;
  const auto fill = [&](auto field, std::uint64_t key, std::size_t channels) {
    const weft::Shape shape =
        Dims == 2 ? weft::Shape{channels, extent[0], extent[1]} : weft::Shape{channels, extent[0], extent[1], extent[2]};
    auto values = batch[field].resize(count, shape);
    std::size_t at = 0;
    for (std::size_t image = first * channels; image < (first + count) * channels; ++image)
      for (std::size_t x = 0; x < extent[0]; ++x)
        for (std::size_t y = 0; y < extent[1]; ++y)
          for (std::size_t z = 0; z < extent[2]; ++z) {
            const std::size_t line = (image * side + begin[0] + x) * side + begin[1] + y;
            values[at++] = float(golden_number(key, Dims == 2 ? line : line * side + begin[2] + z));
          }
  };
  fill(::fields::now, 1000, 1 + Dims), fill(::fields::later, 1001, 1);
  return batch;
}

}  // namespace weft_test
