// SPDX-License-Identifier: Apache-2.0
// covers: weft/kernels/along_cut_dim.hpp
// softmax, log_softmax and argmax along a long dim that axes cut: the values and gradients of one rank, with the dim left in
// place, and a few numbers a row sent.

#include "dtensor/operations_support.hpp"

#include <cmath>
#include <limits>

#include <weft/dtensor/explain.hpp>
#include <weft/kernels/along_cut_dim.hpp>

using namespace weft_test;
using dtensor::partial, dtensor::replicate, dtensor::shard;

namespace {

template <class T>
double compare(World& world, const dtensor::DeviceMesh& mesh, const Shape& shape, const Placements& placements, int dim, bool log,
               std::uint64_t number) {
  const dtensor::DeviceMesh alone(Communicator(std::make_shared<comm::SelfGroup>("alone")));
  const auto computed = [&](const dtensor::DeviceMesh& grid, const Placements& cut, const Placements& of_gradient) {
    auto x = make<T>(world, grid, shape, cut, [&](std::size_t i) { return 8 * value_at(number, i); });
    x.requires_grad();
    const auto y = log ? log_softmax(x, dim) : softmax(x, dim);
    y.backward(make<T>(world, grid, shape, of_gradient, [&](std::size_t i) { return value_at(number + 1, i); }));
    auto all = copy_to_host(y.full_tensor());
    for (const T g : copy_to_host(x.grad().full_tensor())) all.push_back(g);
    return all;
  };
  const auto expected = computed(alone, Placements(1), Placements(1));
  double worst = 0;
  for (const Placements& of_gradient : {placements, Placements(mesh.axes())}) {
    const auto got = computed(mesh, placements, of_gradient);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double difference = std::abs(double(got[i]) - double(expected[i])) / (1 + std::abs(double(expected[i])));
      if (!(difference <= worst)) worst = difference;
    }
  }
  return worst;
}

// Every mesh of these tests, with the layouts of a [3, 83] tensor and of a [83, 3] one whose long dim is cut.
template <class F>
void on_meshes(const F& f) {
  on(2, [&](World& world) { f(world, dtensor::DeviceMesh(Mesh<dp>(world), dp{}), std::vector<int>{1}); });
  on(4, [&](World& world) {
    f(world, dtensor::DeviceMesh(world.communicator()), std::vector<int>{1});
    const dtensor::DeviceMesh grid(Mesh<dp, tp>(world, {.tp = 2}), dp{}, tp{});
    for (const std::vector<int>& cuts : {std::vector<int>{1, 1}, {1, 0}, {0, 1}, {1, -1}}) f(world, grid, cuts);
  });
}
// 1: the long dim, 0: the other one, -1: whole.
Placements layout(const std::vector<int>& cuts, int long_dim) {
  Placements placements;
  for (const int cut : cuts) placements.push_back(cut < 0 ? replicate() : shard(cut == 1 ? long_dim : 1 - long_dim));
  return placements;
}

}  // namespace

TEST_CASE("softmax along a cut dim leaves it cut, with the values and gradients of one rank") {
  on_meshes([](World& world, const dtensor::DeviceMesh& mesh, const std::vector<int>& cuts) {
    for (const int dim : {0, 1})
      for (const bool log : {false, true}) {
        const Shape shape = dim == 1 ? Shape{3, 83} : Shape{83, 3};
        const Placements placements = layout(cuts, dim);
        const auto x = make<double>(world, mesh, shape, placements, [](std::size_t i) { return value_at(5, i); });
        const std::string lines = dtensor::explain(mesh, [&] {
          const auto y = log ? log_softmax(x, dim) : softmax(x, dim);
          CHECK(y.placements() == placements);
        });
        INFO(lines);
        CHECK(lines.find("->") == std::string::npos);
        CHECK(lines.find("softmax itself, over ") != std::string::npos);
        CHECK(compare<double>(world, mesh, shape, placements, dim, log, 11) <= 1e-13);
        CHECK(compare<float>(world, mesh, shape, placements, dim, log, 12) <= 2e-6);
      }
  });
}

TEST_CASE("ranks without elements of the dim, and rows of -infinity on one rank") {
  on(4, [](World& world) {
    const dtensor::DeviceMesh line(world.communicator());
    const double infinity = std::numeric_limits<double>::infinity();
    // Twelve rows of five columns: rank 3 has no column, and rank 0's are -infinity.
    const auto x = make<double>(world, line, {12, 5}, {shard(1)}, [&](std::size_t i) { return i % 5 < 2 ? -infinity : 0.0; });
    CHECK((world.rank() == 3) == (x.to_local().size() == 0));
    const std::vector<double> y = copy_to_host(softmax(x, 1).full_tensor());
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == doctest::Approx(i % 5 < 2 ? 0.0 : 1.0 / 3));
    for (const std::int32_t place : copy_to_host(argmax(x, 1).full_tensor())) CHECK(place == 2);
  });
}

TEST_CASE("argmax along a cut dim: the first of equal elements, and a NaN before all others") {
  on_meshes([](World& world, const dtensor::DeviceMesh& mesh, const std::vector<int>& cuts) {
    const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
    for (const int dim : {0, 1}) {
      // Rows: one largest element; equal ones on two ranks; a NaN after an infinity; NaNs alone beside -infinity; all equal.
      const auto element = [&](std::size_t i) {
        const std::size_t row = dim == 1 ? i / 83 : i % 5, k = dim == 1 ? i % 83 : i / 5;
        if (row == 0) return k == 61 ? 3.0 : value_at(2, k);
        if (row == 1) return k == 17 || k == 70 ? 2.0 : -1.0;
        if (row == 2) return k == 3 ? infinity : k == 50 || k == 71 ? nan : 0.0;
        if (row == 3) return k == 82 ? nan : -infinity;
        return -infinity;
      };
      const auto x = make<double>(world, mesh, dim == 1 ? Shape{5, 83} : Shape{83, 5}, layout(cuts, dim), element);
      const std::string lines = dtensor::explain(mesh, [&] {
        CHECK(copy_to_host(argmax(x, dim).full_tensor()) == std::vector<std::int32_t>{61, 17, 50, 82, 0});
      });
      CHECK(lines.find("->") == std::string::npos);
    }
  });
}

TEST_CASE("the cheaper way is taken: two numbers a row, or the tensor itself") {
  on(2, [](World& world) {
    const dtensor::DeviceMesh grid(Mesh<dp>(world), dp{});
    const auto lines = [&](const Shape& shape) {
      const auto x = make<double>(world, grid, shape, {shard(1)}, [](std::size_t i) { return value_at(3, i); });
      return dtensor::explain(grid, [&] { softmax(x, 1); });
    };
    CHECK(lines({4, 60}) ==
          "softmax [4, 60] [shard(1)]: [4, 60] [shard(1)], 0 bytes\n"
          "softmax itself, over dp, 32 bytes\nsoftmax itself, over dp, 32 bytes\n");
    CHECK(lines({60, 4}) == "softmax [60, 4] [shard(1)] -> [shard(0)]: [60, 4] [shard(0)], 480 bytes\n");
  });
}
