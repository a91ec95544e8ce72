// SPDX-License-Identifier: Apache-2.0
// The Fourier neural operator and the diffusion model of examples/fields equal PyTorch's over 20 steps, in double in all
// layouts, the operator also with fields that domain axes cut, and in float on one rank.

#include <doctest/doctest.h>

#include "examples/fields/diffusion.hpp"
#include "examples/fields/fno.hpp"
#include "support/field_golden.hpp"
#include "support/flow_golden.hpp"

using namespace fields;
using weft_test::golden_values;

TEST_CASE("a Fourier neural operator, also cut over two axes of space") {
  auto layouts = weft_test::stack_layouts;
  layouts.insert(layouts.end(), weft_test::layouts_of_space.begin(), weft_test::layouts_of_space.end());
  weft_test::check_golden<Fno, dx, dy>("fno", layouts, {.width = 8, .modes = 2, .layers = 3},
                                       [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
                                         return weft_test::flow_of<2>(first, count, mesh);
                                       });
}
TEST_CASE("diffusion of pictures, with the noise of weft's generator") {
  weft_test::check_golden<Diffusion>("diffusion", weft_test::stack_layouts, {.width = 8, .blocks = 2},
                                     [](std::size_t first, std::size_t count, std::size_t) {
                                       Pictures batch;
                                       golden_values(batch[picture].resize(count, {1, 6, 6}), 1000, first, 36);
                                       golden_values(batch[remaining].resize(count, {1, 1, 1}), 1001, first, 1);
                                       golden_values(batch[spread].resize(count, {1, 1, 1}), 1002, first, 1);
                                       golden_values(batch[moment].resize(count, {time_features}), 1003, first, time_features);
                                       return batch;
                                     });
}
