// SPDX-License-Identifier: Apache-2.0
// covers: weft/inference/model.hpp weft/inference/replica.hpp weft/inference/pool.hpp
// covers: weft/tensor/strided_array.hpp weft/tensor/strided_copy.hpp
// A trained model as a function of arrays: the bits of the model that was trained, from Views of every layout, by threads that
// call it at the same time.

#include <doctest/doctest.h>

#include <array>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <weft/inference/model.hpp>
#include <weft/inference/pool.hpp>
#include <weft/inference/replica.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/tensor/strided_array.hpp>
#include <weft/tensor/strided_copy.hpp>

#include "inference/models.hpp"
#include "support/message.hpp"

using namespace weft_test;

namespace {

/// A model after a few training steps.
template <class S>
struct Trained {
  DefaultDevice device;
  SingleDevice<Mlp<S>> model;
  explicit Trained(const typename Mlp<S>::Config& config = {}) : model(device, config) {
    optim::AdamW optimizer(model, {.learning_rate = 1e-2});
    const std::vector<double> x = numbers(16 * config.inputs, 7), y = numbers(16 * config.outputs, 8);
    typename Mlp<S>::Batch batch{.samples = 16};
    batch[in].view(std::span<const double>(x), {config.inputs});
    batch[out].view(std::span<const double>(y), {config.outputs});
    for (int step = 0; step < 3; ++step) {
      model.train_step(batch);
      optimizer.step();
    }
  }
};

}  // namespace

TEST_CASE_TEMPLATE("a call has the bits of the model's predictions", S, float, double, bfloat16) {
  Trained<S> trained({.inputs = 5, .width = 48, .outputs = 3, .dropout = 0.5});
  inference::Model<Mlp<S>> net(trained.model);
  for (const std::size_t samples : {1, 2, 3, 4, 5, 7, 64}) {
    const std::vector<double> x = numbers(samples * 5);
    Kokkos::View<const double**, Kokkos::LayoutRight, Kokkos::HostSpace> given(x.data(), samples, 5);
    Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> result("result", samples, 3);
    net(given, result);
    CHECK(std::vector<double>(result.data(), result.data() + samples * 3) == predicted(trained.model, x, 5));
  }
  // Later steps of the trained model do not change the copy.
  std::vector<double> x = numbers(5), before(3), after(3);
  net(x, before);
  CHECK(before == predicted(trained.model, x, 5));
  std::vector<double> ones(48 * 5, 1.0);
  trained.model.set_parameter("first.weight", std::span<const double>(ones));
  net(x, after);
  CHECK(after == before);
  CHECK(after != predicted(trained.model, x, 5));
}

TEST_CASE("Views of every layout, of the model's scalar and of another") {
  Trained<float> trained({.inputs = 5, .outputs = 3});
  inference::Model<Mlp<float>> net(trained.model);
  constexpr std::size_t samples = 37;
  const std::vector<double> numbers_in = numbers(samples * 5);
  std::vector<double> rounded(numbers_in.size());
  for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] = double(float(numbers_in[i]));
  const std::vector<double> expected = predicted(trained.model, rounded, 5);
  std::size_t calls = 0;
  const auto check = [&](const auto& x, const auto& y) {
    for (std::size_t i = 0; i < samples; ++i)
      for (std::size_t j = 0; j < 5; ++j) x(i, j) = typename std::remove_cvref_t<decltype(x)>::value_type(rounded[i * 5 + j]);
    net(x, y);
    std::vector<double> found;
    for (std::size_t i = 0; i < samples; ++i)
      for (std::size_t j = 0; j < 3; ++j) found.push_back(double(y(i, j)));
    CHECK(found == expected);
    ++calls;
  };
  const auto with_scalars = [&]<class T, class U>(T, U) {
    using Left = Kokkos::View<T**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
    using Right = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace>;
    using LeftOut = Kokkos::View<U**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
    using RightOut = Kokkos::View<U**, Kokkos::LayoutRight, Kokkos::HostSpace>;
    Left left("left", samples, 5);
    Right right("right", samples, 5);
    Kokkos::View<T***, Kokkos::LayoutRight, Kokkos::HostSpace> many("many", 2 * samples, 7, 4);
    const auto part = Kokkos::subview(many, std::pair(1, int(samples) + 1), std::pair(2, 7), 3);
    LeftOut y_left("y", samples, 3);
    RightOut y_right("y", samples, 3);
    Kokkos::View<U***, Kokkos::LayoutLeft, Kokkos::HostSpace> all("all", 6, samples, 9);
    const auto y_part = Kokkos::subview(all, 5, Kokkos::ALL, std::pair(4, 7));
    check(left, y_left);
    check(left, y_right);
    check(right, y_left);
    check(right, y_right);
    check(part, y_part);
  };
  with_scalars(float(), float());
  with_scalars(double(), float());
  with_scalars(double(), double());
  CHECK(calls == 15);
}

TEST_CASE("an operation does not take the caller's memory for its result") {
  Trained<double> trained;
  inference::Model<Mlp<double>> net(trained.model);
  const std::vector<double> x = numbers(3);
  std::vector<double> given = x, y(1);
  for (int call = 0; call < 3; ++call) net(given, y);
  CHECK(given == x);
}

TEST_CASE("threads call it at the same time") {
  Trained<float> trained;
  inference::Model<Mlp<float>> net(trained.model);
  constexpr int threads = 6, calls = 300;
  std::vector<float> expected(threads * calls), found(threads * calls);
  const auto input = [](int thread, int call) { return std::array<float, 3>{float(thread) / 7, float(call) / calls, 0.5f}; };
  for (int thread = 0; thread < threads; ++thread)
    for (int call = 0; call < calls; ++call)
      net(input(thread, call), std::span(&expected[std::size_t(thread * calls + call)], 1));
  CHECK(net.replicas() == 1);
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread)
    all.emplace_back([&, thread] {
      for (int call = 0; call < calls; ++call) net(input(thread, call), std::span(&found[std::size_t(thread * calls + call)], 1));
    });
  for (std::thread& one : all) one.join();
  CHECK(found == expected);
  CHECK(net.replicas() <= threads);
}

#ifdef KOKKOS_ENABLE_OPENMP
TEST_CASE("a kernel of the solver calls it") {
  Trained<float> trained;
  inference::Model<Mlp<float>> net(trained.model);
  constexpr int cells = 500;
  std::vector<float> expected(cells), found(cells);
  for (int cell = 0; cell < cells; ++cell)
    net(std::array{float(cell) / cells, 0.f, 1.f}, std::span(&expected[std::size_t(cell)], 1));
  Kokkos::parallel_for(Kokkos::RangePolicy<Kokkos::OpenMP>(0, cells), [&](int cell) {
    net(std::array{float(cell) / cells, 0.f, 1.f}, std::span(&found[std::size_t(cell)], 1));
  });
  Kokkos::fence();
  CHECK(found == expected);
}
#endif

TEST_CASE("a wrong output is refused with both shapes") {
  Trained<float> trained({.outputs = 2});
  inference::Model<Mlp<float>> net(trained.model);
  std::vector<float> x(3), y(3);
  CHECK(message<ShapeError>([&] { net(x, y); }) == "weft: inference: the output is [1, 3] and the model returns [1, 2]");
  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> rows("x", 4, 3), result("y", 3, 2);
  CHECK(message<ShapeError>([&] { net(rows, result); }) == "weft: inference: the output is [3, 2] and the model returns [4, 2]");
  std::vector<float> wide(4), two(2);
  CHECK_THROWS_AS(net(wide, two), ShapeError);
  net(x, two);  // the object is as before
  CHECK(two[0] == float(predicted(trained.model, {0, 0, 0}, 3)[0]));
}
