// SPDX-License-Identifier: Apache-2.0
// The parity matrix of a small vision transformer: each sample becomes several rows, which attention, positions and dropout use,
// and which are pooled at the end.

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

TEST_CASE("patches of images: every layout equals one rank") {
  CHECK(check_layouts_of<TensorLayout<Patches>>({}, field_layouts) >= 24);
}
