// SPDX-License-Identifier: Apache-2.0
// The models of examples/fields that work on points (a physics-informed network, message passing, a potential) equal PyTorch's
// over 20 steps, in double and in float in eight layouts.

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
/// The nodes of a rank of dx; the last rank has what the others leave.
struct NodesHere {
  NodesHere(const auto& mesh, std::size_t nodes)
      : nodes(nodes),
        first(nodes / std::size_t(mesh.size(dx())) * std::size_t(mesh.rank(dx()))),
        end(mesh.rank(dx()) + 1 == mesh.size(dx()) ? nodes : first + nodes / std::size_t(mesh.size(dx()))) {}
  std::size_t count() const { return end - first; }
  bool has(std::size_t node) const { return node >= first && node < end; }
  /// Of golden samples of `width` numbers for each node.
  void fill(std::span<float> values, std::uint64_t key, std::size_t first_sample, std::size_t width) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t sample = first_sample + i / (count() * width);
      values[i] = float(weft_test::golden_number(key, (sample * nodes + first) * width + i % (count() * width)));
    }
  }
  std::size_t nodes, first, end;
};

TEST_CASE("message passing on a mesh, also cut over dx") {
  constexpr std::size_t nodes = 5, edges = 2 * nodes;
  const auto samples_of = [](std::size_t first, std::size_t count, std::size_t micro_batches, const auto& mesh) {
    Meshes batch;
    const NodesHere here(mesh, nodes);
    here.fill(batch[value].resize(count, {here.count(), 1}), 1000, first, 1);
    here.fill(batch[next_value].resize(count, {here.count(), 1}), 1001, first, 1);
    const std::size_t some = 2 * here.count();  // edges into each node
    auto ways = batch[edge].resize(count, {some, 3});
    auto from = batch[sender].resize(count, {some}), into = batch[receiver].resize(count, {some});
    std::size_t at = 0;
    for (std::size_t i = 0; i < count * edges; ++i) {
      const std::size_t before = i / edges % (count / micro_batches) * nodes, node = i % edges / 2,
                        other = (node + 1 + i % 2) % nodes;
      if (!here.has(other)) continue;
      weft_test::golden_values(ways.subspan(3 * at, 3), 1002, first * edges + i, 3);
      from[at] = std::int32_t(before + node), into[at++] = std::int32_t(before + other);
    }
    return batch;
  };
  weft_test::check_golden<MeshNet, dx>("mesh", weft_test::graph_layouts, {.width = 8, .layers = 2}, samples_of);
}
TEST_CASE("a potential with energies and forces, also cut over dx") {
  constexpr std::size_t atoms = 4;
  const auto samples_of = [](std::size_t first, std::size_t count, std::size_t micro_batches, const auto& mesh) {
    Molecules batch;
    const NodesHere here(mesh, atoms);
    here.fill(batch[position].resize(count, {here.count(), 3}), 1000, first, 3);
    for (float& number : batch[position].writable()) number *= 2;
    here.fill(batch[force].resize(count, {here.count(), 3}), 1001, first, 3);
    golden_values(batch[energy].resize(count, {1}), 1002, first, 1);
    const std::size_t pairs = here.count() * (atoms - 1);
    auto of = batch[atom].resize(count, {pairs}), beside = batch[neighbour].resize(count, {pairs});
    std::size_t at = 0;
    for (std::size_t sample = 0; sample < count; ++sample)
      for (std::size_t a = here.first; a < here.end; ++a)
        for (std::size_t b = 0; b < atoms; ++b) {
          if (a == b) continue;
          const std::size_t before = sample % (count / micro_batches) * atoms;
          of[at] = std::int32_t(before + a), beside[at++] = std::int32_t(before + b);
        }
    return batch;
  };
  weft_test::check_golden<Potential, dx>("potential", weft_test::graph_layouts, {.width = 8}, samples_of);
}
