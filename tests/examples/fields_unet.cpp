// SPDX-License-Identifier: Apache-2.0
// The U-Nets of examples/fields equal PyTorch's over 20 steps, in double in eight layouts and in float on one rank.

#include <doctest/doctest.h>

#include "examples/fields/unet.hpp"
#include "support/field_golden.hpp"

using namespace fields;

namespace {

template <class S>
using Unet2 = Unet<S, 2>;
template <class S>
using Unet3 = Unet<S, 3>;

/// Samples of 8 x 8 or 8 x 8 x 8 points.
template <int Dims>
Flow samples_of(std::size_t first, std::size_t count, std::size_t) {
  constexpr std::size_t points = Dims == 2 ? 64 : 512;
  Flow batch;
  const auto shape = [](std::size_t channels) { return Dims == 2 ? Shape{channels, 8, 8} : Shape{channels, 8, 8, 8}; };
  weft_test::golden_values(batch[now].resize(count, shape(1 + Dims)), 1000, first, (1 + Dims) * points);
  weft_test::golden_values(batch[later].resize(count, shape(1)), 1001, first, points);
  return batch;
}

}  // namespace

TEST_CASE("a U-Net of images") {
  weft_test::check_golden<Unet2>("unet2", weft_test::stack_layouts, {.channels = 8}, samples_of<2>);
}
TEST_CASE("a U-Net of volumes") {
  weft_test::check_golden<Unet3>("unet3", {{1}, {8, 2, 2, 2, 3}}, {.channels = 8}, samples_of<3>);
}
