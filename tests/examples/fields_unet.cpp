// SPDX-License-Identifier: Apache-2.0
// The U-Nets of examples/fields equal PyTorch's over 20 steps, in double and in float in all layouts, also with fields that
// domain axes cut.

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "examples/fields/unet.hpp"
#include "support/field_golden.hpp"
#include "support/flow_golden.hpp"

using namespace fields;

namespace {

template <class S>
using Unet2 = Unet<S, 2>;
template <class S>
using Unet3 = Unet<S, 3>;

}  // namespace

TEST_CASE("a U-Net of images, also cut over two axes of space") {
  auto layouts = weft_test::stack_layouts;
  layouts.insert(layouts.end(), weft_test::layouts_of_space.begin(), weft_test::layouts_of_space.end());
  const auto samples = [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
    return weft_test::flow_of<2>(first, count, mesh);
  };
  weft_test::check_golden<Unet2, dx, dy>("unet2", layouts, {.channels = 8}, samples);
}
TEST_CASE("a U-Net of volumes, also cut over three axes of space") {
  const auto samples = [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
    return weft_test::flow_of<3>(first, count, mesh);
  };
  auto layouts = weft_test::layouts_of_space;
  layouts.insert(layouts.end(),
                 {{1}, {.world = 8, .tp = 2, .pp = 2, .micro_batches = 2, .zero = 3}, {.world = 8, .dx = 2, .dy = 2, .dz = 2}});
  weft_test::check_golden<Unet3, dx, dy, dz>("unet3", layouts, {.channels = 8}, samples);
}
