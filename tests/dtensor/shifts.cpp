// SPDX-License-Identifier: Apache-2.0
// Slices and concatenations along a cut dim: the elements of one rank, with only those sent whose rank changes.

#include "dtensor/operations_support.hpp"

#include <weft/dtensor/explain.hpp>
#include <weft/dtensor/shifts.hpp>

using namespace weft_test;
using dtensor::partial, dtensor::replicate, dtensor::shard;

namespace {

template <class T>
DTensor<T> tensor(World& world, const dtensor::DeviceMesh& mesh, const Shape& shape, const Placements& placements,
                  std::uint64_t number) {
  return make<T>(world, mesh, shape, placements, [=](std::size_t i) { return 64 * value_at(number, i); });
}
dtensor::DeviceMesh alone() { return dtensor::DeviceMesh(Communicator(std::make_shared<comm::SelfGroup>("alone"))); }

}  // namespace

TEST_CASE("elements that stay on their rank are not sent") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const auto lines = [&](std::size_t first, std::size_t last) {
      const D x = tensor<double>(world, grid, {8, 3}, {shard(0)}, 1);
      return dtensor::explain(grid, [&] { slice(x, 0, first, last); });
    };
    // Each of the two ranks has its half of the middle; of the second half, the first rank gets two rows.
    CHECK(lines(2, 6) == "slice [8, 3] [shard(0)]: [4, 3] [shard(0)], 0 bytes\nslice itself, over dp, 0 bytes\n");
    CHECK(lines(4, 8) == "slice [8, 3] [shard(0)]: [4, 3] [shard(0)], 0 bytes\nslice itself, over dp, 48 bytes\n");
    // One row of x goes to the first rank, and one of y to the second.
    const D x = tensor<double>(world, grid, {8, 3}, {shard(0)}, 1), y = tensor<double>(world, grid, {2, 3}, {shard(0)}, 2);
    CHECK(dtensor::explain(grid, [&] { concat(x, y, 0); }).find("concat itself, over dp, 24 bytes") != std::string::npos);
    const dtensor::RefuseMoves strict(grid);
    CHECK_THROWS_WITH_AS(slice(x, 0, 4, 8), doctest::Contains("RefuseMoves is in force"), UsageError);
  });
}

TEST_CASE("random slices and concatenations are those of one rank, and send no more than the operands' redistribution") {
  int direct = 0;
  const auto check = [&](World& world, const dtensor::DeviceMesh& mesh, unsigned seed) {
    std::mt19937 random(seed);
    for (int trial = 0; trial < 60; ++trial) {
      const std::size_t a = 1 + random() % 13, b = 1 + random() % 13, other = 1 + random() % 4;
      const int dim = int(random() % 2);
      const auto shape = [&](std::size_t extent) { return dim == 0 ? Shape{extent, other} : Shape{other, extent}; };
      Placements placements{shard(dim)};
      while (placements.size() < mesh.axes()) placements.push_back(random() % 3 == 0 ? partial() : shard(int(random() % 2)));
      if (mesh.axes() > 1 && random() % 2 == 0) std::swap(placements[0], placements[1]);
      const std::size_t first = random() % (a + 1), last = first + random() % (a + 1 - first);
      const auto results = [&](const dtensor::DeviceMesh& grid, const Placements& cut) {
        D x = tensor<double>(world, grid, shape(a), cut, 100 + unsigned(trial)),
          y = tensor<double>(world, grid, shape(b), cut, 200 + unsigned(trial));
        x.requires_grad();
        y.requires_grad();
        const D part = slice(x, dim, first, last), both = concat(x, y, dim);
        part.backward(tensor<double>(world, grid, part.shape(), cut, 300));
        const D of_slice = x.grad();
        both.backward(tensor<double>(world, grid, both.shape(), cut, 400));
        const auto integers =
            concat(slice(tensor<std::int32_t>(world, grid, shape(a), Placements(grid.axes()), 5), dim, first, last),
                   tensor<std::int32_t>(world, grid, shape(b), Placements(grid.axes()), 6), dim);
        std::vector<std::vector<double>> all;
        for (const D& one : {part, both, of_slice, x.grad(), y.grad()}) all.push_back(copy_to_host(one.full_tensor()));
        const auto numbers = copy_to_host(integers.full_tensor());
        all.emplace_back(numbers.begin(), numbers.end());
        return all;
      };
      INFO("[" << a << "] and [" << b << "] along dim " << dim << ", [" << first << ", " << last << ") on " << mesh.text() << " "
               << dtensor::text(placements));
      CHECK(results(mesh, placements) == results(alone(), Placements(1)));
      const D x = tensor<double>(world, mesh, shape(a), placements, 1);
      const double before = mesh.bytes_moved();
      const std::string lines = dtensor::explain(mesh, [&] { slice(x, dim, first, last); });
      const double sent = mesh.bytes_moved() - before;
      const auto rule = dtensor::detail::along_rule_of(x.shape(), dim, 1);
      const std::vector<dtensor::detail::OperandInfo> operands{dtensor::detail::info_of(x)};
      Shape sliced = x.shape();
      sliced[std::size_t(dim)] = last - first;
      CHECK(sent <= dtensor::detail::choose(rule, operands, sliced, mesh.places()).bytes + 0.01);  // differences of thirds
      if (world.rank() == 0) direct += lines.find("itself") != std::string::npos;
    }
  };
  on(2, [&](World& world) { check(world, dtensor::DeviceMesh(Mesh<dp>(world), dp{}), 1); });
  on(3, [&](World& world) { check(world, dtensor::DeviceMesh(world.communicator()), 2); });
  on(4, [&](World& world) {
    check(world, dtensor::DeviceMesh(world.communicator()), 3);
    check(world, dtensor::DeviceMesh(Mesh<dp, tp>(world, {.tp = 2}), dp{}, tp{}), 4);
  });
  CHECK(direct >= 120);
}
