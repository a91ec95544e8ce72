// SPDX-License-Identifier: Apache-2.0
// The parity matrix of two towers with two inputs, tuples between their units, and a layer that both ends share; and that of a
// Module with a loss.

#include "support/field_models.hpp"
#include "support/field_parity.hpp"

using namespace weft_test;

TEST_CASE("two towers with a shared layer: every layout equals one rank") {
  CHECK(check_layouts_of<TensorLayout<Towers>>({}, field_layouts) >= 24);
}

template <class Model>
using TensorAlone = FullyShardedDataParallel<TensorParallel<Model>>;
template <class Model>
using SequenceAlone = FullyShardedDataParallel<SequenceParallel<Model>>;

TEST_CASE("a Module with a loss: every layout without a pipeline equals one rank") {
  std::vector<MatrixEntry> layouts;
  for (const MatrixEntry& entry : field_layouts)
    if (entry.degrees.pp == 1) layouts.push_back(entry);
  layouts.push_back({8, {.tp = 2}, 1, "1f1b", 2});
  CHECK(check_layouts_of<TensorAlone<MlpModule>, Mesh<dp, tp>>({}, layouts) >= 12);
  CHECK(check_layouts_of<SequenceAlone<MlpModule>, Mesh<dp, tp>>({}, {{2, {.tp = 2}, 2}, {4, {.tp = 2}, 2, "1f1b", 3}}) == 2);
}
