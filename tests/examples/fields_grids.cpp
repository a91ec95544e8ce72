// SPDX-License-Identifier: Apache-2.0
// The Fourier neural operator and the diffusion model of examples/fields equal PyTorch's over 20 steps, in double and in float
// in all layouts, also with fields that domain axes cut.

#include <doctest/doctest.h>

#include "examples/fields/diffusion.hpp"
#include "examples/fields/fno.hpp"
#include "support/cut_diffusion.hpp"
#include "support/field_golden.hpp"
#include "support/flow_golden.hpp"

using namespace fields;

namespace {

std::vector<weft_test::GoldenLayout> with_space(std::vector<weft_test::GoldenLayout> layouts) {
  layouts.insert(layouts.end(), weft_test::layouts_of_space.begin(), weft_test::layouts_of_space.end());
  return layouts;
}

}  // namespace

TEST_CASE("a Fourier neural operator, also cut over two axes of space") {
  weft_test::check_golden<Fno, dx, dy>("fno", with_space(weft_test::stack_layouts), {.width = 8, .modes = 2, .layers = 3},
                                       [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
                                         return weft_test::flow_of<2>(first, count, mesh);
                                       });
}
TEST_CASE("diffusion of pictures, with the noise of weft's generator, also cut over two axes of space") {
  weft_test::check_golden<Diffusion, dx, dy>("diffusion", with_space(weft_test::stack_layouts), {.width = 8, .blocks = 2},
                                             [](std::size_t first, std::size_t count, std::size_t, const auto& mesh) {
                                               return weft_test::pictures_of(first, count, mesh);
                                             });
}
