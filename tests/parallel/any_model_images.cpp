// SPDX-License-Identifier: Apache-2.0
// The parity matrix of the models of examples/06_classify (support/image_models.hpp): in every layout as on one rank.

#include "support/image_models.hpp"

using namespace weft_test;

TEST_CASE("a convolutional network with BatchNorm: every layout equals one rank") {
  CHECK(check_layouts_of<TensorLayout<Network>>({}, field_layouts) >= 24);
}
TEST_CASE("a vision transformer: every layout equals one rank") {
  CHECK(check_layouts_of<TensorLayout<Transformer>>({}, field_layouts) >= 24);
}
