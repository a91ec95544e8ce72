// SPDX-License-Identifier: Apache-2.0
// covers: weft/dtensor/redistribute.hpp weft/dtensor/sharding.hpp
// DTensor on meshes of one, two and three axes: random redistributions compared with a brute-force oracle, the chosen
// collectives, uneven shards, and errors.

#include "dtensor/dtensor_support.hpp"

#include <mutex>

#include <weft/dtensor/dtensor.hpp>
#include <weft/dtensor/redistribute.hpp>
#include <weft/dtensor/sharding.hpp>

using namespace weft_test;
using dtensor::partial;
using dtensor::replicate;
using dtensor::shard;

// Both namespaces can be used at once: the concept and the struct have different names.
namespace beside {
using namespace weft;
using namespace weft::dtensor;
static_assert(Placement<Shard<tp, 0>> && !Placement<AxisPlacement>);
}  // namespace beside

namespace {

using Exec = DefaultDevice::execution_space;

template <class T>
void check_type(unsigned seed) {
  std::mutex mutex;
  const auto report = [&](const char* mesh, std::size_t wrong) {
    std::lock_guard lock(mutex);
    INFO(mesh << ", " << name_of(data_type_of<T>));
    CHECK(wrong == 0);
  };
  on(2, [&](World& world) { report("2", check_random<T>(world, dtensor::DeviceMesh(world.communicator()), 40, seed)); });
  on(4, [&](World& world) {
    report("4", check_random<T>(world, dtensor::DeviceMesh(Mesh<dp>(world), dp{}), 40, seed + 1));
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    report("2 x 2", check_random<T>(world, dtensor::DeviceMesh(mesh, dp{}, tp{}), 40, seed + 2));
    report("2 x 2 the other way", check_random<T>(world, dtensor::DeviceMesh(mesh, tp{}, dp{}), 40, seed + 3));
  });
  on(6, [&](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 3});
    report("2 x 3", check_random<T>(world, dtensor::DeviceMesh(mesh, dp{}, tp{}), 40, seed + 4));
  });
  on(8, [&](World& world) {
    const Mesh<dp, tp, pp> mesh(world, {.tp = 2, .pp = 2});
    report("2 x 2 x 2", check_random<T>(world, dtensor::DeviceMesh(mesh, pp{}, dp{}, tp{}), 40, seed + 5));
  });
}

Tensor<double, Exec> numbers(World& world, const Shape& shape) {
  Tensor<double, Exec> x(world.device(), shape);
  std::vector<double> values;
  for (std::size_t i = 0; i < x.size(); ++i) values.push_back(double(i));
  copy_from_host(x, std::span<const double>(values));
  return x;
}

}  // namespace

TEST_CASE("random redistributions in float") { check_type<float>(1); }
TEST_CASE("random redistributions in double") { check_type<double>(2); }
TEST_CASE("random redistributions in bfloat16") { check_type<bfloat16>(3); }
TEST_CASE("random redistributions in int32") { check_type<std::int32_t>(4); }
TEST_CASE("random redistributions in int64") { check_type<std::int64_t>(5); }

TEST_CASE("uneven chunks are torch.chunk's") {
  const auto lengths = [](std::size_t extent, std::size_t ranks) {
    std::vector<std::size_t> all;
    for (std::size_t rank = 0; rank < ranks; ++rank) all.push_back(dtensor::chunk_of(extent, ranks, rank).length);
    return all;
  };
  CHECK(lengths(10, 4) == std::vector<std::size_t>{3, 3, 3, 1});
  CHECK(lengths(5, 4) == std::vector<std::size_t>{2, 2, 1, 0});
  CHECK(lengths(1, 3) == std::vector<std::size_t>{1, 0, 0});
  CHECK(lengths(0, 2) == std::vector<std::size_t>{0, 0});
}

TEST_CASE("a change is made by the one collective that does it") {
  using dtensor::Step;
  using dtensor::steps_between;
  CHECK(steps_between({shard(0)}, {shard(1)}) == std::vector<Step>{{0, shard(0), shard(1)}});
  CHECK(steps_between({partial()}, {shard(0)}) == std::vector<Step>{{0, partial(), shard(0)}});
  CHECK(steps_between({shard(0)}, {partial()}) == std::vector<Step>{{0, shard(0), partial()}});
  CHECK(steps_between({shard(0), replicate()}, {shard(0), replicate()}).empty());
  CHECK(steps_between({replicate(), shard(0)}, {shard(0), shard(0)}).size() == 3);  // the later axis is sharded again
  CHECK(steps_between({shard(0), shard(0)}, {shard(0), replicate()}) == std::vector<Step>{{1, shard(0), replicate()}});
  CHECK(steps_between({shard(0), shard(1)}, {shard(0), shard(0)}) == std::vector<Step>{{1, shard(1), shard(0)}});
}

TEST_CASE("sub-meshes, parts and local handles") {
  on(4, [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const dtensor::DeviceMesh grid(mesh, dp{}, tp{});
    auto x = distribute_tensor(grid, numbers(world, {5, 3}), {shard(0), shard(0)});  // 5 rows: 3 + 2, then 2 + 1 and 1 + 1
    const std::size_t rows[] = {2, 1, 1, 1};
    const std::size_t place = std::size_t(mesh.rank(dp{}) * 2 + mesh.rank(tp{}));
    CHECK(x.to_local().shape() == Shape{rows[place], 3});
    CHECK(x.part().first[0] == std::vector<std::size_t>{0, 2, 3, 4}[place]);
    CHECK(x.redistribute(x.placements()).to_local().data() == x.to_local().data());  // nothing to do: nothing copied
    const auto over_tp = distribute_tensor(grid.sub({"tp"}), numbers(world, {4}), {shard(-1)});
    CHECK(over_tp.to_local().size() == 2);
    CHECK(copy_to_host(over_tp.full_tensor()) == std::vector<double>{0, 1, 2, 3});
    CHECK_THROWS_WITH_AS(grid.sub({"pp"}), "weft: dtensor: no axis pp in the mesh dp(2) * tp(2)", UsageError);
  });
}

TEST_CASE("impossible placements are refused with the numbers, on every rank and before anything moves") {
  on(2, [](World& world) {
    const Mesh<dp> mesh(world);
    const dtensor::DeviceMesh grid(mesh, dp{});
    const auto x = numbers(world, {4, 3});
    CHECK_THROWS_WITH_AS(distribute_tensor(grid, x, {shard(0), replicate()}),
                         "weft: dtensor: 2 placements [shard(0), replicate] for a mesh of 1 axes, dp(2)", UsageError);
    CHECK_THROWS_WITH_AS(distribute_tensor(grid, x, {shard(2)}), "weft: dtensor: shard(2) of a tensor [4, 3]: it has 2 dims",
                         UsageError);
    CHECK_THROWS_WITH_AS(distribute_tensor(grid, x, {shard(-3)}), "weft: dtensor: shard(-3) of a tensor [4, 3]: it has 2 dims",
                         UsageError);
    const std::string text =
        "weft: dtensor [4, 3] with placements [shard(0)] on dp(2): this rank holds [4, 3], expected [2, 3] at dp rank " +
        std::to_string(world.rank());
    CHECK_THROWS_WITH_AS(DTensor<double>::from_local(grid, x, {shard(0)}, {4, 3}), text.c_str(), ShapeError);
    // 1 + 3 rows are not chunks of 4.
    CHECK_THROWS_AS(DTensor<double>::from_local(grid, numbers(world, {std::size_t(1 + 2 * world.rank()), 3}), {shard(0)}),
                    ShapeError);
  });
  const std::vector<dtensor::AxisPlace> axes{{"dp", 2, 0}, {"tp", 2, 0}};
  CHECK_THROWS_WITH_AS(dtensor::checked({4}, axes, {partial(), partial(Reduction::max)}),
                       "weft: dtensor: placements [partial(sum), partial(max)]: a partial(sum) and a partial(max) give another "
                       "value in another order",
                       UsageError);
}
