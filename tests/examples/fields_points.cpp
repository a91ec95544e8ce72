// SPDX-License-Identifier: Apache-2.0
// The models of examples/fields that work on points (a physics-informed network, message passing, a potential) equal PyTorch's
// over 20 steps, in double in eight layouts and in float on one rank.

#include <doctest/doctest.h>

#include "examples/fields/mesh.hpp"
#include "examples/fields/pinn.hpp"
#include "examples/fields/potential.hpp"
#include "support/field_golden.hpp"

using namespace fields;
using weft_test::golden_values;

TEST_CASE("a physics-informed network") {
  weft_test::check_golden<Pinn>("pinn", weft_test::module_layouts, {.width = 8},
                                [](std::size_t first, std::size_t count, std::size_t) {
                                  Points batch;
                                  golden_values(batch[inside].resize(count, {2}), 1000, first, 2);
                                  golden_values(batch[border].resize(count, {2}), 1001, first, 2);
                                  golden_values(batch[given].resize(count, {1}), 1002, first, 1);
                                  return batch;
                                });
}
TEST_CASE("message passing on a mesh") {
  constexpr std::size_t nodes = 5, edges = 2 * nodes;
  const auto samples_of = [](std::size_t first, std::size_t count, std::size_t micro_batches) {
    Meshes batch;
    golden_values(batch[value].resize(count, {nodes, 1}), 1000, first, nodes);
    golden_values(batch[next_value].resize(count, {nodes, 1}), 1001, first, nodes);
    golden_values(batch[edge].resize(count, {edges, 3}), 1002, first, 3 * edges);
    auto from = batch[sender].resize(count, {edges}), into = batch[receiver].resize(count, {edges});
    for (std::size_t i = 0; i < count * edges; ++i) {
      const std::size_t before = i / edges % (count / micro_batches) * nodes, node = i % edges / 2;
      from[i] = std::int32_t(before + node), into[i] = std::int32_t(before + (node + 1 + i % 2) % nodes);
    }
    return batch;
  };
  weft_test::check_golden<MeshNet>("mesh", weft_test::module_layouts, {.width = 8, .layers = 2}, samples_of);
}
TEST_CASE("a potential with energies and forces") {
  constexpr std::size_t atoms = 4, pairs = atoms * (atoms - 1);
  const auto samples_of = [](std::size_t first, std::size_t count, std::size_t micro_batches) {
    Molecules batch;
    golden_values(batch[position].resize(count, {atoms, 3}), 1000, first, 3 * atoms);
    for (float& number : batch[position].writable()) number *= 2;
    golden_values(batch[force].resize(count, {atoms, 3}), 1001, first, 3 * atoms);
    golden_values(batch[energy].resize(count, {1}), 1002, first, 1);
    auto of = batch[atom].resize(count, {pairs}), beside = batch[neighbour].resize(count, {pairs});
    std::size_t at = 0;
    for (std::size_t sample = 0; sample < count; ++sample)
      for (std::size_t a = 0; a < atoms; ++a)
        for (std::size_t b = 0; b < atoms; ++b) {
          if (a == b) continue;
          const std::size_t before = sample % (count / micro_batches) * atoms;
          of[at] = std::int32_t(before + a), beside[at++] = std::int32_t(before + b);
        }
    return batch;
  };
  weft_test::check_golden<Potential>("potential", weft_test::module_layouts, {.width = 8}, samples_of);
}
