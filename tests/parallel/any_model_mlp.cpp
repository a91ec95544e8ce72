// SPDX-License-Identifier: Apache-2.0
// The parity matrix of a multilayer perceptron with numbers in and out: a stack on a batch of fields, in every layout as on one
// rank.

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

TEST_CASE("a perceptron on fields: every layout equals one rank") {
  CHECK(check_layouts_of<TensorLayout<Mlp>>({}, field_layouts) >= 24);
}
TEST_CASE("the same with rows cut over tp between units") {
  const std::vector<MatrixEntry> layouts = {{2, {.tp = 2}, 2},
                                            {4, {.tp = 4}, 1},
                                            {4, {.tp = 2}, 2, "1f1b", 3},
                                            {4, {.tp = 2, .pp = 2}, 4, "zbv"},
                                            {8, {.tp = 2, .pp = 2}, 2, "zb-h1", 2}};
  CHECK(check_layouts_of<SequenceLayout<Mlp>>({}, layouts) == 5);
}
