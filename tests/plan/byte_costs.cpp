// SPDX-License-Identifier: Apache-2.0
// A machine's links decide which operands of an operation on DTensors move.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <weft/dtensor/operations.hpp>
#include <weft/plan/byte_costs.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;
using dtensor::replicate, dtensor::shard;

namespace {

plan::Machine with_nodes_of(int ranks) {
  plan::Machine machine = plan::known_machine("h100");
  machine.ranks_per_node = ranks;
  return machine;
}

template <class F>
void on(int ranks, F&& f) {
  CHECK(runtime::run(runtime::RunOptions{.ranks = ranks}, f) == 0);
}

}  // namespace

TEST_CASE("a byte costs the time of the slowest link on its way") {
  on(4, [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const dtensor::DeviceMesh grid(mesh, dp{}, tp{});
    const plan::Machine one_node = with_nodes_of(4), two_nodes = with_nodes_of(2);
    const double inside = 1 / (one_node.inside.bandwidth * one_node.link_share),
                 across = 1 / (one_node.across.bandwidth * one_node.link_share);
    const std::vector<double> near = plan::byte_costs(one_node, world, grid), far = plan::byte_costs(two_nodes, world, grid);
    CHECK(near[0] == doctest::Approx(inside));
    CHECK(near[1] == doctest::Approx(inside));
    CHECK(far[0] == doctest::Approx(across));  // dp's ranks 0 and 2 are on two nodes
    CHECK(far[1] == doctest::Approx(inside));
    // In nodes of three ranks, ranks 2 and 3 are apart and 0 and 1 are not: all ranks have the cost of the slower group.
    CHECK(plan::byte_costs(with_nodes_of(3), world, grid)[1] == doctest::Approx(across));
    const dtensor::DeviceMesh alone(Mesh<pp, dp>(world), pp{});
    CHECK(plan::byte_costs(two_nodes, world, alone) == std::vector<double>{0});
  });
}

TEST_CASE("an operation moves its operands inside the nodes") {
  on(4, [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    dtensor::DeviceMesh grid(mesh, dp{}, tp{});
    const auto tensor = [&](const dtensor::Placements& placements) {
      return dtensor::full<double>(world.device(), grid, {8, 8}, placements, 1);
    };
    const auto moved = [&](const plan::Machine& machine) {
      grid.set_byte_costs(plan::byte_costs(machine, world, grid));
      const auto x = tensor({shard(0), shard(0)}), w = tensor({shard(0), replicate()});
      return dtensor::explain(grid, [&] { matmul(x, w); });
    };
    CHECK(moved(with_nodes_of(4)) ==
          "matmul [8, 8] [shard(0), shard(0)], [8, 8] [shard(0), replicate] -> [replicate, replicate]: [8, 8] [shard(0), "
          "shard(0)], 256 bytes\n");
    CHECK(moved(with_nodes_of(2)) ==
          "matmul [8, 8] [shard(0), shard(0)] -> [shard(1), shard(0)], [8, 8] [shard(0), replicate]: [8, 8] [partial(sum), "
          "shard(0)], 256 bytes\n");
  });
}
