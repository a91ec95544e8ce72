// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations on DTensors that tests compare with one rank and with PyTorch: a name, the operands' shapes, and the call; and
// the comparison with one rank in random layouts, for ranks of every backend. Tensors of values are functions of a number and the
// index in the whole, so every layout and PyTorch can make them.

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "dtensor/dtensor_support.hpp"

#include <weft/comm/self.hpp>
#include <weft/dtensor/operations.hpp>

namespace weft_test {

using D = DTensor<double>;
using I = DTensor<std::int32_t>;
using C = DTensor<std::uint8_t>;

/// Operands of a case, in one layout.
struct Operands {
  std::vector<D> x;
  I ids;  // numbers below 5, of the case's shape
  C condition;
};

struct OperationCase {
  std::string name;
  std::vector<Shape> shapes;
  std::function<D(const Operands&)> call;
  Shape ids = {7};
  bool smooth = true;  ///< has a gradient everywhere near random operands
};

inline D first(const Operands& o) { return o.x[0]; }

/// Every operation; operands of uneven extents for 2 and 4 ranks, except where `even` is in the name.
inline std::vector<OperationCase> operation_cases() {
  using O = const Operands&;
  std::vector<OperationCase> all;
  const auto one = [&](const char* name, std::function<D(const D&)> f, Shape shape = {5, 3}) {
    all.push_back({name, {shape}, [f](O o) { return f(o.x[0]); }});
  };
  const auto two = [&](const char* name, Shape a, Shape b, std::function<D(const D&, const D&)> f) {
    all.push_back({name, {a, b}, [f](O o) { return f(o.x[0], o.x[1]); }});
  };
  one("neg", [](const D& x) { return -x; });
  one("exp", [](const D& x) { return exp(x); });
  one("log", [](const D& x) { return log(x * x + 0.5); });
  one("tanh", [](const D& x) { return tanh(x); }, {7});
  one("sigmoid", [](const D& x) { return sigmoid(x); });
  one("sqrt", [](const D& x) { return sqrt(x * x + 0.25); });
  one("relu", [](const D& x) { return relu(x); });
  one("gelu", [](const D& x) { return gelu(x); }, {3, 2, 5});
  one("silu", [](const D& x) { return silu(x); });
  one("pow", [](const D& x) { return pow(x, 3); });
  one("scale", [](const D& x) { return 2.5 * x / 4; });
  one("shift", [](const D& x) { return 1.5 - (x + 2 - 0.25); });
  one("reciprocal", [](const D& x) { return 2 / (x * x + 1); });
  two("add", {5, 3}, {5, 3}, [](const D& x, const D& y) { return x + y; });
  two("add row", {5, 3}, {3}, [](const D& x, const D& y) { return x + y; });
  two("add column", {5, 1}, {1, 3}, [](const D& x, const D& y) { return x + y; });
  two("subtract", {3, 2, 5}, {2, 1}, [](const D& x, const D& y) { return x - y; });
  two("multiply", {5, 3}, {5, 3}, [](const D& x, const D& y) { return x * y; });
  two("multiply row", {5, 3}, {3}, [](const D& x, const D& y) { return x * y; });
  two("multiply number", {}, {5, 3}, [](const D& x, const D& y) { return x * y; });
  two("divide", {5, 3}, {5, 1}, [](const D& x, const D& y) { return x / (y * y + 1); });
  two("maximum", {5, 3}, {5, 3}, [](const D& x, const D& y) { return maximum(x, y); });
  two("minimum", {5, 3}, {3}, [](const D& x, const D& y) { return minimum(x, y); });
  all.push_back({"where", {{5, 3}, {3}}, [](O o) { return where(o.condition, o.x[0], o.x[1]); }, {5, 3}});
  all.push_back({"greater", {{5, 3}, {5, 3}}, [](O o) { return where(greater(o.x[0], o.x[1]), o.x[0], o.x[1] * 2.0); }});
  one("cast", [](const D& x) { return cast<double>(cast<float>(x) * 2.0); });
  one("expand", [](const D& x) { return expand(x, {2, 5, 3}); }, {5, 1});
  two("matmul", {5, 3}, {3, 7}, [](const D& x, const D& y) { return matmul(x, y); });
  two("matmul even", {4, 8}, {8, 4}, [](const D& x, const D& y) { return matmul(x, y); });
  two("matmul of rows", {3, 5, 3}, {3, 2}, [](const D& x, const D& y) { return matmul(x, y); });
  two("batched matmul", {3, 5, 2}, {3, 2, 3}, [](const D& x, const D& y) { return matmul(x, y); });
  two("batched matmul 4", {2, 3, 2, 5}, {2, 3, 5, 3}, [](const D& x, const D& y) { return matmul(x, y); });
  one("sum", [](const D& x) { return sum(x); });
  one("sum rows", [](const D& x) { return sum(x, {0}); });
  one("sum two dims", [](const D& x) { return sum(x, {0, -1}, true); }, {3, 2, 5});
  one("mean", [](const D& x) { return mean(x); });
  one("mean columns", [](const D& x) { return mean(x, {1}, true); });
  one("max", [](const D& x) { return max(x); });
  one("max rows", [](const D& x) { return max(x, {0}); });
  one("min columns", [](const D& x) { return min(x, {-1}, true); }, {3, 2, 5});
  one("softmax", [](const D& x) { return softmax(x, -1); });
  one("softmax rows", [](const D& x) { return softmax(x, 0); });
  one("log_softmax", [](const D& x) { return log_softmax(x, 1); }, {3, 5, 2});
  one("norm", [](const D& x) { return norm(x); });
  one("norm rows", [](const D& x) { return norm(x, {1}); });
  one("transpose", [](const D& x) { return transpose(x); });
  one("permute", [](const D& x) { return permute(x, {2, 0, 1}); }, {3, 2, 5});
  one("reshape", [](const D& x) { return reshape(x, {15}); });
  one("reshape even", [](const D& x) { return reshape(x, {8, 2, 2}); }, {4, 2, 4});
  one("reshape apart", [](const D& x) { return reshape(x, {5, 3, 2}); }, {15, 2});
  one("reshape ones", [](const D& x) { return reshape(x, {1, 5, 1, 3}); });
  one("slice", [](const D& x) { return slice(x, 0, 1, 4); });
  one("slice columns", [](const D& x) { return slice(x, -1, 0, 2); });
  two("concat", {5, 3}, {2, 3}, [](const D& x, const D& y) { return concat(x, y, 0); });
  two("concat columns", {5, 3}, {5, 4}, [](const D& x, const D& y) { return concat(x, y, 1); });
  all.push_back({"index_select", {{5, 3}}, [](O o) { return index_select(o.x[0], o.ids); }});
  all.push_back({"embedding", {{5, 6}}, [](O o) { return embedding(o.x[0], o.ids); }, {2, 3}});
  all.push_back({"cross_entropy", {{7, 5}}, [](O o) { return cross_entropy(o.x[0], o.ids); }});
  for (OperationCase& one_case : all)
    if (one_case.name == "relu" || one_case.name.rfind("max", 0) == 0 || one_case.name.rfind("min", 0) == 0 ||
        one_case.name == "greater" || one_case.name == "cast")
      one_case.smooth = false;
  return all;
}

/// Element `index` of tensor `number`: a multiple of 1/64 between -1 and 1, so that terms of sums are exact.
inline double value_at(std::uint64_t number, std::uint64_t index) { return double(int(key_of(number, index) % 129) - 64) / 64; }
/// The weight of a rank's term of a sum of n; the weights add up to 1.
inline double weight_of(std::size_t rank, std::size_t ranks) {
  double others = 0;
  for (std::size_t r = 1; r < ranks; ++r) others += 1 / double(2 << r);
  return rank == 0 ? 1 - others : 1 / double(2 << rank);
}

template <class T, class F>
DTensor<T> make(World& world, const dtensor::DeviceMesh& mesh, const Shape& shape, const Placements& placements, const F& f) {
  const auto places = mesh.places();
  std::vector<std::size_t> here;
  double weight = 1;
  for (std::size_t axis = 0; axis < places.size(); ++axis) {
    here.push_back(places[axis].rank);
    if (!placements[axis].is_partial()) continue;
    weight *= weight_of(places[axis].rank, places[axis].ranks);
    if (placements[axis].reduction == Reduction::average) weight *= double(places[axis].ranks);
  }
  std::vector<T> values;
  for (const std::size_t index : indices_of(shape, places, placements, here)) values.push_back(T(f(index) * weight));
  Tensor<T, DefaultDevice::execution_space> local(world.device(), dtensor::part_of(shape, places, placements).shape);
  copy_from_host(local, std::span<const T>(values));
  return DTensor<T>::from_local(mesh, local, placements, shape);
}

/// Case `number`'s operands in these layouts: one for each of x, one for ids, one for the condition.
inline Operands make_operands(World& world, const dtensor::DeviceMesh& mesh, const OperationCase& of, std::uint64_t number,
                              const std::vector<Placements>& layouts, bool leaves) {
  Operands operands{{},
                    make<std::int32_t>(world, mesh, of.ids, layouts[of.shapes.size()],
                                       [&](std::size_t i) { return double(key_of(number, 7, i) % 5); }),
                    make<std::uint8_t>(world, mesh, of.ids, layouts[of.shapes.size() + 1],
                                       [&](std::size_t i) { return double(key_of(number, 9, i) % 2); })};
  for (std::size_t k = 0; k < of.shapes.size(); ++k) {
    operands.x.push_back(
        make<double>(world, mesh, of.shapes[k], layouts[k], [&](std::size_t i) { return value_at(key_of(number, k), i); }));
    if (leaves) operands.x.back().requires_grad();
  }
  return operands;
}

/// The value and the gradients of a case, whole on every rank.
inline std::vector<std::vector<double>> values_and_gradients(World& world, const dtensor::DeviceMesh& mesh,
                                                             const OperationCase& of, std::uint64_t number,
                                                             const std::vector<Placements>& layouts,
                                                             const Placements& seed_layout, bool& placed) {
  const Operands operands = make_operands(world, mesh, of, number, layouts, true);
  const D y = of.call(operands);
  Placements seeded = seed_layout;
  for (auto& placement : seeded)
    if (placement.is_shard() && placement.dim >= int(y.shape().rank())) placement = dtensor::replicate();
  y.backward(make<double>(world, mesh, y.shape(), seeded, [&](std::size_t i) { return value_at(number + 1000, i); }));
  std::vector<std::vector<double>> all{copy_to_host(y.full_tensor())};
  for (const D& x : operands.x) {
    const D g = x.grad();
    for (std::size_t axis = 0; axis < mesh.axes(); ++axis)
      placed = placed && (x.placements()[axis].is_partial() ? g.placements()[axis] == dtensor::replicate()
                                                            : g.placements()[axis] == x.placements()[axis]);
    all.push_back(copy_to_host(g.full_tensor()));
  }
  return all;
}

inline std::vector<Placements> random_layouts(const OperationCase& of, std::mt19937& random, std::size_t axes) {
  std::vector<Placements> layouts;
  const auto placements = [&](std::size_t rank, bool terms) {
    Placements all;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const auto choice = random() % 5;
      if (choice == 0 || (rank == 0 && choice > 1) || (!terms && choice == 1)) all.push_back(dtensor::replicate());
      else if (choice == 1) all.push_back(dtensor::partial(random() % 3 == 0 ? Reduction::average : Reduction::sum));
      else all.push_back(dtensor::shard(int(random() % rank)));
    }
    return all;
  };
  for (const Shape& shape : of.shapes) layouts.push_back(placements(shape.rank(), true));
  layouts.push_back(placements(of.ids.rank(), false));
  layouts.push_back(placements(of.ids.rank(), false));
  return layouts;
}

inline std::string text_of(const std::vector<Placements>& layouts) {
  std::string all;
  for (const auto& one : layouts) all += " " + dtensor::text(one);
  return all;
}

/// Compares every operation, its values and its gradients, in `trials` random layouts on the mesh with one rank, to 1e-13.
/// Returns the number of comparisons on rank 0, and 0 on the others.
inline std::size_t check_operations(World& world, const dtensor::DeviceMesh& mesh, int trials, unsigned seed) {
  static std::mutex mutex;  // thread ranks report one after the other
  const dtensor::DeviceMesh alone(Communicator(std::make_shared<comm::SelfGroup>("alone")));
  const auto cases = operation_cases();
  std::mt19937 random(seed);
  std::size_t checked = 0;
  for (std::size_t number = 0; number < cases.size(); ++number) {
    const OperationCase& of = cases[number];
    bool placed = true;
    const auto expected = values_and_gradients(
        world, alone, of, number, std::vector<Placements>(of.shapes.size() + 2, Placements(1)), Placements(1), placed);
    for (int trial = 0; trial < trials; ++trial) {
      const auto layouts = random_layouts(of, random, mesh.axes());
      Placements seeded;
      for (std::size_t axis = 0; axis < mesh.axes(); ++axis)
        seeded.push_back(random() % 3 == 0 ? dtensor::partial() : random() % 2 == 0 ? dtensor::shard(0) : dtensor::replicate());
      const auto got = values_and_gradients(world, mesh, of, number, layouts, seeded, placed);
      double worst = 0;
      bool sizes = got.size() == expected.size();
      for (std::size_t k = 0; sizes && k < got.size(); ++k) {
        sizes = got[k].size() == expected[k].size();
        for (std::size_t i = 0; sizes && i < got[k].size(); ++i) {
          const double difference = std::abs(got[k][i] - expected[k][i]) / (1 + std::abs(expected[k][i]));
          if (!(difference <= worst)) worst = difference;
        }
      }
      checked += world.rank() == 0;
      std::lock_guard lock(mutex);
      INFO(of.name << " on " << mesh.text() << ":" << text_of(layouts) << " from a gradient " << dtensor::text(seeded));
      CHECK(sizes);
      CHECK(placed);
      CHECK(worst <= 1e-13);
    }
  }
  return checked;
}

}  // namespace weft_test
