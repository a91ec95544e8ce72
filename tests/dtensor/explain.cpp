// SPDX-License-Identifier: Apache-2.0
// covers: weft/dtensor/device_mesh.hpp weft/dtensor/choose.hpp
// The account of operations on DTensors, the cheapest redistribution and its bytes, the scope without moves, and the errors.

#include "dtensor/operations_support.hpp"

#include <weft/dtensor/choose.hpp>
#include <weft/dtensor/device_mesh.hpp>
#include <weft/dtensor/explain.hpp>
#include <weft/dtensor/operations.hpp>

using namespace weft_test;
using dtensor::partial, dtensor::replicate, dtensor::shard;

namespace {

D tensor(World& world, const dtensor::DeviceMesh& mesh, const Shape& shape, const Placements& placements) {
  return make<double>(world, mesh, shape, placements, [](std::size_t i) { return value_at(3, i); });
}

}  // namespace

TEST_CASE("a matmul explains which operand it moves, and the cheaper one is moved") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const auto line = [&](const Shape& a, const Placements& pa, const Shape& b, const Placements& pb) {
      const D x = tensor(world, grid, a, pa), w = tensor(world, grid, b, pb);
      return dtensor::explain(grid, [&] { matmul(x, w); });
    };
    // Both sharded: the smaller one is gathered; a rank receives half of 4 * 6 * 8 bytes.
    CHECK(line({8, 4}, {shard(0)}, {4, 6}, {shard(1)}) ==
          "matmul [8, 4] [shard(0)], [4, 6] [shard(1)] -> [replicate]: [8, 6] [shard(0)], 96 bytes\n");
    CHECK(line({2, 4}, {shard(0)}, {4, 6}, {shard(1)}) ==
          "matmul [2, 4] [shard(0)] -> [replicate], [4, 6] [shard(1)]: [2, 6] [shard(1)], 32 bytes\n");
    // Nothing moves if both are cut along the sum.
    CHECK(line({8, 4}, {shard(1)}, {4, 6}, {shard(0)}) ==
          "matmul [8, 4] [shard(1)], [4, 6] [shard(0)]: [8, 6] [partial(sum)], 0 bytes\n");
    // A local slice costs nothing.
    CHECK(line({8, 4}, {replicate()}, {4, 6}, {shard(0)}) ==
          "matmul [8, 4] [replicate] -> [shard(1)], [4, 6] [shard(0)]: [8, 6] [partial(sum)], 0 bytes\n");
    // A nonlinear operation reduces terms first: a reduce-scatter moves half of an all-reduce.
    const D terms = tensor(world, grid, {4, 6}, {partial()});
    CHECK(dtensor::explain(grid, [&] { relu(terms); }) ==
          "relu [4, 6] [partial(sum)] -> [shard(0)]: [4, 6] [shard(0)], 96 bytes\n");
    CHECK(dtensor::explain(grid, [&] { terms * 2.0; }) == "multiply [4, 6] [partial(sum)]: [4, 6] [partial(sum)], 0 bytes\n");
    CHECK(dtensor::explain(grid, [&] { terms.redistribute({replicate()}); }) ==
          "redistribute [4, 6] [partial(sum)] -> [replicate], 192 bytes\n");
    // The moves within an explained scope are counted, too, and others are not explained.
    const double before = grid.bytes_moved();
    relu(terms);
    CHECK(grid.bytes_moved() - before == 96);
    const D rows = tensor(world, grid, {4, 6}, {shard(0)});
    CHECK(dtensor::explain(grid, [&] { softmax(rows, 0); }) ==
          "softmax [4, 6] [shard(0)] -> [shard(1)]: [4, 6] [shard(1)], 48 bytes\n");  // an all-to-all: half of a rank's part
    const I labels = make<std::int32_t>(world, grid, {4}, {replicate()}, [](std::size_t) { return 0.0; });
    const D classes = tensor(world, grid, {4, 60}, {shard(1)});
    const auto loss = dtensor::explain(grid, [&] { cross_entropy(classes, labels); });
    CHECK(loss.find("cross_entropy itself, over dp, 32 bytes") != std::string::npos);  // the largest logits of four rows
    CHECK(loss.find("->") == std::string::npos);                                       // the logits stay
    CHECK(loss.find("cross_entropy itself, over dp, 64 bytes") != std::string::npos);  // two sums a row
  });
}

TEST_CASE("costs of a byte on each axis decide over which axis data moves") {
  on(4, [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const auto moved = [&](const std::vector<double>& costs) {
      dtensor::DeviceMesh grid(mesh, dp{}, tp{});
      grid.set_byte_costs(costs);
      const D x = tensor(world, grid, {8, 8}, {shard(0), shard(0)}), w = tensor(world, grid, {8, 8}, {shard(0), replicate()});
      return dtensor::explain(grid, [&] { matmul(x, w); });
    };
    CHECK(moved({1, 1}) ==
          "matmul [8, 8] [shard(0), shard(0)], [8, 8] [shard(0), replicate] -> [replicate, replicate]: [8, 8] [shard(0), "
          "shard(0)], 256 bytes\n");
    // Over dear links the rows of x are exchanged instead, after a gather over the cheap ones.
    CHECK(moved({100, 1}) ==
          "matmul [8, 8] [shard(0), shard(0)] -> [shard(1), shard(0)], [8, 8] [shard(0), replicate]: [8, 8] [partial(sum), "
          "shard(0)], 256 bytes\n");
    dtensor::DeviceMesh grid(mesh, dp{}, tp{});
    CHECK_THROWS_WITH_AS(grid.set_byte_costs({1}),
                         "weft: dtensor: set_byte_costs takes one number of at least 0 for each axis of dp(2) * tp(2), not 1 "
                         "numbers or a negative one",
                         UsageError);
  });
  // The first axis is dear: terms are reduced over the second one, where the rule lets it choose.
  using dtensor::moved_bytes;
  const std::vector<dtensor::AxisPlace> axes{{"dp", 2, 0, 10}, {"tp", 4, 0, 1}};
  CHECK(moved_bytes({8, 8}, 8, axes, {shard(0), replicate()}, {replicate(), replicate()}) == 256);
  CHECK(moved_bytes({8, 8}, 8, axes, {shard(0), replicate()}, {replicate(), replicate()}, true) == 2560);
  CHECK(moved_bytes({8, 8}, 8, axes, {replicate(), shard(0)}, {replicate(), replicate()}, true) == 384);
  CHECK(moved_bytes({8, 8}, 8, axes, {replicate(), partial()}, {replicate(), replicate()}) == 768);
  CHECK(moved_bytes({8, 8}, 8, axes, {replicate(), partial()}, {replicate(), shard(0)}) == 384);
  CHECK(moved_bytes({8, 8}, 8, axes, {replicate(), shard(0)}, {replicate(), shard(1)}) == 96);
  CHECK(moved_bytes({8, 8}, 8, axes, {replicate(), replicate()}, {replicate(), shard(1)}) == 0);
}

TEST_CASE("RefuseMoves throws before anything moves, and names the redistribution") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const D x = tensor(world, grid, {8, 4}, {shard(0)}), w = tensor(world, grid, {4, 6}, {shard(1)});
    {
      const dtensor::RefuseMoves strict(grid);
      const double before = grid.bytes_moved();
      CHECK_THROWS_WITH_AS(matmul(x, w),
                           "weft: dtensor: matmul of [8, 4] [shard(0)] and [4, 6] [shard(1)] on dp(2) moves operands, and "
                           "RefuseMoves is in force: call operand 2's redistribute([replicate]) first (96 bytes in all)",
                           UsageError);
      CHECK(grid.bytes_moved() == before);
      CHECK(matmul(x, w.redistribute({replicate()})).placements() == Placements{shard(0)});
    }
    CHECK(matmul(x, w).placements() == Placements{shard(0)});
  });
}

TEST_CASE("backward explains the move of a leaf's gradient, and RefuseMoves refuses it") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const D x = tensor(world, grid, {8, 4}, {shard(0)});
    D w = tensor(world, grid, {4, 6}, {replicate()}), rows = tensor(world, grid, {8, 4}, {shard(0)});
    w.requires_grad();
    rows.requires_grad();
    const D y = sum(matmul(x, w));
    const double before = grid.bytes_moved();
    const std::string lines = dtensor::explain(grid, [&] { y.backward(); });
    CHECK(lines.find("gradient [4, 6] [partial(sum)] -> [replicate], 192 bytes\n") != std::string::npos);
    CHECK(grid.bytes_moved() - before >= 192);

    const dtensor::RefuseMoves strict(grid);
    CHECK_THROWS_WITH_AS(sum(matmul(x, w)).backward(),
                         "weft: dtensor: backward moves the gradient of a tensor [4, 6] on dp(2) from [partial(sum)] to the "
                         "tensor's [replicate] (192 bytes), and RefuseMoves is in force: call backward outside of its scope",
                         UsageError);
    sum(rows * 2.0).backward();  // its gradient has the leaf's placements
    CHECK(rows.grad().placements() == Placements{shard(0)});
  });
}

TEST_CASE("wrong operands: one error with the operation, shapes, placements and the remedy") {
  on(2, [](World& world) {
    const Mesh<dp> mesh(world);
    const dtensor::DeviceMesh grid(mesh, dp{}), other(world.communicator());
    const D x = tensor(world, grid, {5, 3}, {shard(0)}), y = tensor(world, grid, {4, 3}, {replicate()});
    CHECK_THROWS_WITH_AS(
        x + y,
        "weft: dtensor: add of [5, 3] [shard(0)] and [4, 3] [replicate]: the shapes do not broadcast: aligned at "
        "their last dims, extents are equal or 1; insert dims of one element with reshape",
        ShapeError);
    CHECK_THROWS_WITH_AS(
        x + tensor(world, other, {5, 3}, {shard(0)}),
        "weft: dtensor: add of [5, 3] on dp(2) and [5, 3] on world(2): the meshes differ; distribute both tensors "
        "over one DeviceMesh (full_tensor, then distribute_tensor with Source::every_rank)",
        UsageError);
    CHECK_THROWS_WITH_AS(
        matmul(x, y),
        "weft: dtensor: matmul of [5, 3] [shard(0)] and [4, 3] [replicate]: expected [..., m, k] by [k, n], or by "
        "[..., k, n] with the same leading dims; reshape or expand one of them",
        ShapeError);
    CHECK_THROWS_WITH_AS(reshape(x, {4, 4}),
                         "weft: dtensor: reshape of [5, 3] [shard(0)]: there is no such tensor [4, 4]: the numbers of elements "
                         "differ",
                         ShapeError);
    CHECK_THROWS_WITH_AS(sum(x, {2}), "weft: dtensor: sum of [5, 3] along dim 2: it has 2 dims", UsageError);
    CHECK_THROWS_WITH_AS(slice(x, 0, 2, 6), "weft: dtensor: slice of [5, 3]: there are no elements [2, 6) of dim 0", ShapeError);
    CHECK_THROWS_WITH_AS(permute(x, {0, 0}), "weft: dtensor: permute of [5, 3]: the dims must be 0 to 1, each once", UsageError);
    CHECK_THROWS_WITH_AS(
        concat(x, y, 1),
        "weft: dtensor: concat of [5, 3] [shard(0)] and [4, 3] [replicate]: the extents of all dims but 1 must be "
        "equal",
        ShapeError);
    const I ids = make<std::int32_t>(world, grid, {3}, {replicate()}, [](std::size_t i) { return double(i * 4); });
    CHECK_THROWS_WITH_AS(index_select(x, ids),
                         "weft: dtensor: index_select: row 8 is not below 5 or negative, element 2 of this rank's part of [3] "
                         "[replicate]",
                         UsageError);
    CHECK_THROWS_WITH_AS(
        x.backward(), "weft: dtensor: backward of [5, 3]: it has not one element; give the gradient, y.backward(g)", ShapeError);
    CHECK_THROWS_WITH_AS(sum(x).backward(),
                         "weft: dtensor: backward of []: it was computed from no tensor with requires_grad, or within NoGradient",
                         UsageError);
    D leaf = x.detach();
    CHECK_THROWS_WITH_AS(
        leaf.grad(),
        "weft: dtensor: grad of [5, 3] [shard(0)]: no backward has reached it; only leaves (requires_grad) keep a "
        "gradient",
        UsageError);
    leaf.requires_grad();
    const D loss = sum(leaf * leaf);
    loss.backward();
    CHECK_THROWS_WITH_AS(
        loss.backward(),
        "weft: dtensor: a second backward of []: the first one has freed its operations; compute the value again", UsageError);
    D made = leaf * 2.0;
    CHECK_THROWS_WITH_AS(made.requires_grad(),
                         "weft: dtensor: requires_grad of [5, 3], the result of a recorded operation: make it a leaf first with "
                         "detach()",
                         UsageError);
  });
}

TEST_CASE("operands on different meshes are refused by every operation, with one line and before anything moves") {
  on(4, [](World& world) {
    const Mesh<dp, tp> mesh(world, {.tp = 2});
    const dtensor::DeviceMesh grid(mesh, dp{}, tp{}), rows = grid.sub({"dp"}), columns = grid.sub({"tp"});
    const dtensor::DeviceMesh* const others[] = {&columns, &grid};
    D x = tensor(world, rows, {4, 4}, {shard(0)});
    x.requires_grad();
    for (const dtensor::DeviceMesh* const other : others) {
      const Placements whole(other->places().size(), replicate());
      const D y = tensor(world, *other, {4, 4}, whole);
      const I places = make<std::int32_t>(world, *other, {4}, whole, [](std::size_t i) { return double(i % 4); });
      const auto refused = [&](const char* operation, std::size_t first, std::size_t second, auto&& call) {
        std::string text;
        try {
          call();
        } catch (const UsageError& error) {
          text = error.what();
        }
        const auto on = [](std::size_t dims, const dtensor::DeviceMesh& where) {
          return (dims == 2 ? "[4, 4] on " : "[4] on ") + where.text();
        };
        CHECK(text == std::string("weft: dtensor: ") + operation + " of " + on(first, rows) + " and " + on(second, *other) +
                          ": the meshes differ; distribute both tensors over one DeviceMesh (full_tensor, then "
                          "distribute_tensor with Source::every_rank)");
        CHECK(text.find('\n') == std::string::npos);
      };
      refused("add", 2, 2, [&] { (void)(x + y); });
      refused("multiply", 2, 2, [&] { (void)(x * y); });
      refused("matmul", 2, 2, [&] { (void)matmul(x, y); });
      refused("greater", 2, 2, [&] { (void)greater(x, y); });
      refused("concat", 2, 2, [&] { (void)concat(x, y, 0); });
      refused("index_select", 2, 1, [&] { (void)index_select(x, places); });
      refused("cross_entropy", 2, 1, [&] { (void)cross_entropy(x, places); });
      refused("backward", 2, 2, [&] { (x * 2.0).backward(y); });
      refused("where", 2, 2, [&] { (void)where(greater(x, x), x, y); });
      CHECK(other->bytes_moved() == 0);
    }
    CHECK(rows.bytes_moved() == 0);
    const D again = tensor(world, grid.sub({"dp"}), {4, 4}, {shard(0)});  // the same ranks: one mesh
    CHECK((x + again).placements() == Placements{shard(0)});
  });
}
