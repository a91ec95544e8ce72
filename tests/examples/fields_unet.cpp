// SPDX-License-Identifier: Apache-2.0
// The U-Nets of examples/fields equal PyTorch's over 20 steps, in double in all layouts, also with fields that domain axes cut,
// and in float on one rank.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/fields/unet.hpp"
#include "support/field_golden.hpp"

using namespace fields;

namespace {

template <class S>
using Unet2 = Unet<S, 2>;
template <class S>
using Unet3 = Unet<S, 3>;

/// A rank's pieces of samples of 8 x 8 or 8 x 8 x 8 points.
template <int Dims>
Flow samples_of(std::size_t first, std::size_t count, const auto& mesh) {
  constexpr std::size_t side = 8;
  const auto space = space_of(mesh);
  std::array<std::size_t, 3> begin{}, extent{1, 1, 1};
  for (std::size_t dim = 0; dim < Dims; ++dim) extent[dim] = side / space[dim].ranks, begin[dim] = extent[dim] * space[dim].rank;
  Flow batch;
  const auto fill = [&](auto field, std::uint64_t key, std::size_t channels) {
    const Shape shape = Dims == 2 ? Shape{channels, extent[0], extent[1]} : Shape{channels, extent[0], extent[1], extent[2]};
    auto values = batch[field].resize(count, shape);
    std::size_t at = 0;
    for (std::size_t image = first * channels; image < (first + count) * channels; ++image)
      for (std::size_t x = 0; x < extent[0]; ++x)
        for (std::size_t y = 0; y < extent[1]; ++y)
          for (std::size_t z = 0; z < extent[2]; ++z) {
            const std::size_t line = (image * side + begin[0] + x) * side + begin[1] + y;
            values[at++] = float(weft_test::golden_number(key, Dims == 2 ? line : line * side + begin[2] + z));
          }
  };
  fill(now, 1000, 1 + Dims), fill(later, 1001, 1);
  return batch;
}

}  // namespace

TEST_CASE("a U-Net of images, also cut over two axes of space") {
  auto layouts = weft_test::stack_layouts;
  const std::vector<weft_test::GoldenLayout> in_space = {{.world = 2, .dx = 2},
                                                         {.world = 4, .dx = 2, .dy = 2},
                                                         {.world = 4, .zero = 3, .dy = 2},
                                                         {.world = 4, .tp = 2, .dx = 2},
                                                         {.world = 4, .pp = 2, .micro_batches = 2, .dx = 2}};
  layouts.insert(layouts.end(), in_space.begin(), in_space.end());
  const auto samples = [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
    return samples_of<2>(first, count, mesh);
  };
  weft_test::check_golden<Unet2, dx, dy>("unet2", layouts, {.channels = 8}, samples);
}
TEST_CASE("a U-Net of volumes, also cut over three axes of space") {
  const auto samples = [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
    return samples_of<3>(first, count, mesh);
  };
  weft_test::check_golden<Unet3, dx, dy, dz>(
      "unet3", {{1}, {.world = 8, .tp = 2, .pp = 2, .micro_batches = 2, .zero = 3}, {.world = 8, .dx = 2, .dy = 2, .dz = 2}},
      {.channels = 8}, samples);
}
