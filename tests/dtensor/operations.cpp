// SPDX-License-Identifier: Apache-2.0
// covers: weft/dtensor/apply.hpp weft/dtensor/choose.hpp weft/dtensor/elementwise.hpp weft/dtensor/expand.hpp
// covers: weft/dtensor/functions.hpp weft/dtensor/matmul.hpp weft/dtensor/operations.hpp weft/dtensor/random.hpp
// covers: weft/dtensor/reductions.hpp weft/dtensor/rows.hpp weft/dtensor/tape.hpp weft/dtensor/views.hpp weft/kernels/expand.hpp
// Every operation on DTensors, its values and its gradients, in random layouts of 2 and 4 ranks and of 2 x 2, compared with one
// rank; gradients also with finite differences.

#include "dtensor/operations_support.hpp"

#include <atomic>
#include <cmath>

#include <weft/dtensor/apply.hpp>
#include <weft/dtensor/choose.hpp>
#include <weft/dtensor/elementwise.hpp>
#include <weft/dtensor/expand.hpp>
#include <weft/dtensor/functions.hpp>
#include <weft/dtensor/matmul.hpp>
#include <weft/dtensor/operations.hpp>
#include <weft/dtensor/random.hpp>
#include <weft/dtensor/reductions.hpp>
#include <weft/dtensor/rows.hpp>
#include <weft/dtensor/tape.hpp>
#include <weft/dtensor/views.hpp>
#include <weft/kernels/expand.hpp>

using namespace weft_test;
using dtensor::partial, dtensor::replicate, dtensor::shard;

TEST_CASE("values and gradients of every operation are those of one rank, in random layouts") {
  std::atomic<std::size_t> checked = 0;
  on(2, [&](World& world) { checked += check_operations(world, dtensor::DeviceMesh(Mesh<dp>(world), dp{}), 4, 1); });
  on(4, [&](World& world) {
    checked += check_operations(world, dtensor::DeviceMesh(world.communicator()), 3, 2);
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    checked += check_operations(world, dtensor::DeviceMesh(mesh, dp{}, tp{}), 6, 3);
    checked += check_operations(world, dtensor::DeviceMesh(mesh, dp{}, tp{}).sub({"tp"}), 1, 4);
  });
  CHECK(checked >= 400);
  MESSAGE(checked.load() << " cases");
}

TEST_CASE("gradients are those of finite differences") {
  int compared = 0;
  on(1, [&](World& world) {
    const dtensor::DeviceMesh alone(world.communicator());
    const auto cases = operation_cases();
    for (std::size_t number = 0; number < cases.size(); ++number) {
      const OperationCase& of = cases[number];
      if (!of.smooth) continue;
      const std::vector<Placements> whole(of.shapes.size() + 2, Placements(1));
      const Operands operands = make_operands(world, alone, of, number, whole, true);
      const D y = of.call(operands);
      const D seed = make<double>(world, alone, y.shape(), Placements(1), [&](std::size_t i) { return value_at(number + 1, i); });
      y.backward(seed);
      const double h = 1e-5;
      const auto value = [&](std::size_t k, double by) {
        Operands shifted = make_operands(world, alone, of, number, whole, false);
        const D direction =
            make<double>(world, alone, of.shapes[k], Placements(1), [](std::size_t i) { return value_at(77, i); });
        shifted.x[k] = shifted.x[k] + direction * by;
        return copy_to_host(sum(of.call(shifted) * seed).full_tensor())[0];
      };
      for (std::size_t k = 0; k < of.shapes.size(); ++k, ++compared) {
        const double difference = (value(k, h) - value(k, -h)) / (2 * h);
        double expected = 0;
        const auto g = copy_to_host(operands.x[k].grad().full_tensor());
        for (std::size_t i = 0; i < g.size(); ++i) expected += g[i] * value_at(77, i);
        INFO(of.name << ", operand " << k);
        CHECK(std::abs(difference - expected) <= 1e-7 * (1 + std::abs(expected)));
      }
    }
  });
  CHECK(compared > 50);
}

TEST_CASE("random numbers are functions of the seed and the index, in every layout") {
  on(4, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp, tp>(world, {.tp = 2}), dp{}, tp{});
    for (const Shape& shape : {Shape{7}, Shape{5, 3}, Shape{3, 2, 5}, Shape{2, 3, 5, 3}, Shape{2, 3, 1, 2, 5, 3}}) {
      const auto index = [&](std::size_t i) { return Philox::normal(key_of(std::uint64_t(5), site_of("dtensor")), i); };
      std::vector<double> expected(shape.size());
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = index(i);
      for (const Placements& layout : std::vector<Placements>{{replicate(), replicate()},
                                                              {shard(0), replicate()},
                                                              {shard(0), shard(0)},
                                                              {shard(-1), shard(0)},
                                                              {partial(), shard(-1)},
                                                              {shard(int(shape.rank()) / 2), shard(-1)}})
        CHECK(copy_to_host(dtensor::normal<double>(world.device(), grid, shape, layout, 5).full_tensor()) == expected);
      const auto uniform = dtensor::uniform<double>(world.device(), grid, shape, {shard(0), shard(-1)}, 6, 2, 3);
      for (const double x : copy_to_host(uniform.full_tensor())) CHECK((x >= 2 && x < 3));
    }
  });
}

TEST_CASE("the place of the largest element, labels that do not count, and no gradient without a record") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const std::vector<double> values = {3, 1, 2, 0, 5, 4, 7, 7, 6, -1, -2, -3, 1, 2, 3};
    for (const auto& layout : {replicate(), shard(0), shard(1), partial()}) {
      const D x = make<double>(world, grid, {5, 3}, {layout}, [&](std::size_t i) { return values[i]; });
      CHECK(copy_to_host(argmax(x, 1).full_tensor()) == std::vector<std::int32_t>{0, 1, 0, 0, 2});
      CHECK(copy_to_host(argmax(x, 0).full_tensor()) == std::vector<std::int32_t>{2, 2, 2});
      CHECK(copy_to_host(max(x, {1}).full_tensor()) == std::vector<double>{3, 5, 7, -1, 3});
      CHECK(copy_to_host(min(x).full_tensor()) == std::vector<double>{-3});
      CHECK(copy_to_host(min(x, {0}).full_tensor()) == std::vector<double>{-1, -2, -3});
    }
    // Two of three rows count.
    const D z = make<double>(world, grid, {3, 2}, {shard(0)}, [](std::size_t i) { return double(i); });
    const I labels = make<std::int32_t>(world, grid, {3}, {shard(0)}, [](std::size_t i) { return i == 1 ? -100.0 : 0.0; });
    CHECK(copy_to_host(cross_entropy(z, labels).full_tensor())[0] == doctest::Approx(std::log(1 + std::exp(1))));
    D leaf = z.detach();
    leaf.requires_grad();
    {
      const dtensor::NoGradient scope(grid);
      CHECK(!(leaf * 2.0).needs_grad());
    }
    sum(leaf * 2.0).backward();
    sum(leaf * 3.0).backward();
    CHECK(copy_to_host(leaf.grad().full_tensor()) == std::vector<double>(6, 5.0));
    leaf.zero_grad();
    CHECK(!leaf.has_grad());
  });
}

TEST_CASE("the gradient of a whole leaf is reduced once, after all of its uses") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const D x = make<double>(world, grid, {8, 4}, {shard(0)}, [](std::size_t i) { return value_at(1, i); });
    D w = make<double>(world, grid, {4, 4}, {replicate()}, [](std::size_t i) { return value_at(2, i); });
    w.requires_grad();
    const D loss = sum(matmul(matmul(x, w), w));
    const double before = grid.bytes_moved();
    loss.backward();
    CHECK(grid.bytes_moved() - before == 4 * 4 * 8);  // one all-reduce of [4, 4] over 2 ranks
    CHECK(w.grad().placements() == Placements{replicate()});
  });
}
