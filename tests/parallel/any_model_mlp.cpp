// SPDX-License-Identifier: Apache-2.0
// The parity matrix of a multilayer perceptron with numbers in and out: a stack on a batch of fields, in every layout as on one
// rank.

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

TEST_CASE("a perceptron on fields: every layout equals one rank") {
  CHECK(check_layouts_of<TensorLayout<Mlp>>({}, field_layouts) >= 24);
}
