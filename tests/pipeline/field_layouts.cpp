// SPDX-License-Identifier: Apache-2.0
// Training from Views of any layout: the bits of training from row-major ones, in micro-batches and layouts of ranks, in the
// field's scalar and another one, with the values that the program has written since the step before.

#include <doctest/doctest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/nn/linear.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/losses.hpp>
#include <weft/operations/variables.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/pipeline/field_inputs.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

inline constexpr data::Field<"in", double> in;
inline constexpr data::Field<"out", float> out;

struct Net : Module<Net> {
  using scalar = float;
  using Batch = FieldBatch<in, out>;
  struct Config {};
  Linear<Column> first;
  Linear<Row> second;
  Net(const auto& context, const Config&) : first(context / "first", 6, 8), second(context / "second", 8, 2) {}
  auto forward(const auto& x) const { return to<Invariant<tp>>(second(silu(first(x)))); }
  auto loss(const auto& batch) const { return mse(forward(batch[in]), batch[out]); }
};

/// The losses of a few steps on Views that `make_in(samples)` and `make_out(samples)` return.
template <class MakeIn, class MakeOut>
std::vector<double> losses(const MakeIn& make_in, const MakeOut& make_out) {
  std::vector<double> all;
  const int code = runtime::run(runtime::RunOptions{.ranks = 4}, [&](World& world) {
    Mesh<dp, tp> mesh(world, {.tp = 2});
    DataParallel<TensorParallel<Net>> model(mesh, {});
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    constexpr std::size_t samples = 6;
    const std::size_t first = std::size_t(mesh.comm(dp{}).rank()) * samples;
    const auto x = make_in(samples);
    const auto y = make_out(samples);
    Net::Batch batch{.samples = samples, .micro_batches = 3, .first_sample = first};
    batch[in].view(x);
    batch[out].view(y);
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < samples; ++i) {
        for (std::size_t j = 0; j < 6; ++j) x(i, j) = double((first + i) * 6 + j + std::size_t(step)) / 70;
        for (std::size_t j = 0; j < 2; ++j) y(i, j) = float((first + i + j + std::size_t(step)) % 5);
      }
      const double loss = model.train_step(batch);
      optimizer.step();
      if (world.rank() == 0) all.push_back(loss);
    }
    const Prediction last = model.predict(batch, Gather::whole);
    if (world.rank() == 0) all.insert(all.end(), last.values.begin(), last.values.end());
  });
  CHECK(code == 0);
  return all;
}

template <class T, class Layout>
using Matrix = Kokkos::View<T**, Layout, Kokkos::HostSpace>;

}  // namespace

TEST_CASE("every layout trains to the same bits") {
  const auto rows = [](std::size_t n) { return Matrix<double, Kokkos::LayoutRight>("x", n, 6); };
  const auto targets = [](std::size_t n) { return Matrix<float, Kokkos::LayoutRight>("y", n, 2); };
  const std::vector<double> expected = losses(rows, targets);
  REQUIRE(expected.size() == 4 + 24);
  CHECK(expected[3] != expected[0]);
  CHECK(losses([](std::size_t n) { return Matrix<double, Kokkos::LayoutLeft>("x", n, 6); },
               [](std::size_t n) { return Matrix<float, Kokkos::LayoutLeft>("y", n, 2); }) == expected);
  const auto part = [](std::size_t n) {
    const Kokkos::View<double***, Kokkos::LayoutLeft, Kokkos::HostSpace> all("x", n + 3, 9, 4);
    return Kokkos::subview(all, std::pair(std::size_t(2), n + 2), std::pair(3, 9), 1);
  };
  CHECK(losses(part, targets) == expected);
}
