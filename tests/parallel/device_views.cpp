// SPDX-License-Identifier: Apache-2.0
// covers: weft/tensor/strided_copy.hpp
// Batches that are Views of a GPU's memory, in every layout: the numbers of the same batches in host memory, without a copy
// through the host. The Views are of support/device_views.hpp.
#include "support/device_views.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/tensor/strided_copy.hpp>
#include <weft/weft.hpp>

using namespace weft;
using namespace weft_test;

namespace {

inline constexpr data::Field<"before", double> before;
inline constexpr data::Field<"after", float> after;

constexpr std::size_t samples = 6, rows = 4, columns = 8;  // of a sample

const void* seen = nullptr;  // the model's input in its last forward
struct Surrogate : Module<Surrogate> {
  using scalar = double;
  using Batch = FieldBatch<before, after>;
  struct Config {};
  Linear<> in, out;
  Surrogate(const auto& context, const Config&) : in(context / "in", 32, 16), out(context / "out", 16, 32) {}
  auto forward(const auto& x) const {
    const auto flat = flatten<1, 2>(x);
    return unflatten<1>(flat + out(silu(in(flat))), columns);
  }
  auto loss(const auto& batch) const {
    seen = batch[before].value().data();
    return mse(forward(batch[before]), batch[after]);
  }
};

/// Elements [samples, rows, columns] in device memory with these strides, and where element (0, 0, 0) is.
template <class T>
struct Elements {
  std::vector<T> memory;
  std::array<std::size_t, 3> strides;
  std::size_t first = 0;

  Elements(std::array<std::size_t, 3> of, std::size_t size, std::size_t from = 0)
      : memory(size, T(-77)), strides(of), first(from) {}
  void set(double phase) {
    for (std::size_t s = 0; s < samples; ++s)
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c)
          memory[first + s * strides[0] + r * strides[1] + c * strides[2]] =
              T(double((s * 37 + r * 11 + c * 5) % 17) / 17 + phase);
  }
  DeviceView<T, 3> view() { return {memory.data() + first, {samples, rows, columns}, strides}; }
};
template <class T>
std::vector<Elements<T>> layouts() {
  return {{{rows * columns, columns, 1}, samples * rows * columns},                                 // LayoutRight
          {{1, samples, samples * rows}, samples * rows * columns},                                 // LayoutLeft
          {{(rows + 2) * (columns + 3), columns + 3, 1}, samples * (rows + 2) * (columns + 3), 7},  // a part of a larger View
          {{columns, samples * columns, 1}, samples * rows * columns}};                             // LayoutStride
}

/// The copies between host and device of at least a field's smallest sample.
std::atomic<int> copies{0};
void count_copy(Kokkos_Profiling_SpaceHandle, const char*, const void*, Kokkos_Profiling_SpaceHandle, const char*, const void*,
                std::uint64_t bytes) {
  if (bytes >= rows * columns * sizeof(float)) ++copies;
}

// Losses and a prediction of some steps; give(batch, step) gives the fields.
template <class Give>
std::vector<double> train(DefaultDevice& device, Give&& give) {
  SingleDevice<Surrogate> model(device, {}, {.seed = 3});
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  std::vector<double> numbers;
  Surrogate::Batch batch{.samples = samples, .micro_batches = 2};
  for (int step = 0; step < 3; ++step) {
    give(batch, step);
    numbers.push_back(model.train_step(batch));
    optimizer.step();
  }
  numbers.push_back(model.evaluate(batch));
  return numbers;
}

}  // namespace

TEST_CASE("Views of device memory give the numbers of host memory") {
  Kokkos::Tools::Experimental::set_begin_deep_copy_callback(count_copy);
  DefaultDevice device;
  Elements<double> from({rows * columns, columns, 1}, samples * rows * columns);
  Elements<float> to({rows * columns, columns, 1}, samples * rows * columns);
  const auto expected = train(device, [&](auto& batch, int step) {
    from.set(0.1 * step), to.set(0.2 * step);
    batch[before].assign(from.memory, {rows, columns});
    batch[after].assign(to.memory, {rows, columns});
  });
  for (auto& states : layouts<double>())
    for (auto& targets : layouts<float>()) {
      int in_training = -1;
      const auto got = train(device, [&](auto& batch, int step) {
        if (step == 2) in_training = copies;  // after the checks of the first step
        states.set(0.1 * step), targets.set(0.2 * step);
        batch[before].view(device, states.view());
        batch[after].view(device, targets.view());
      });
      CHECK(got == expected);
      CHECK(copies == in_training);
    }
  CHECK(copies > 0);  // those of the batches in host memory are counted
  Kokkos::Tools::Experimental::set_begin_deep_copy_callback(nullptr);
}
TEST_CASE("a row-major View of the model's scalar is taken where it lies") {
  DefaultDevice device;
  Elements<double> right({rows * columns, columns, 1}, samples * rows * columns);
  Elements<double> left({1, samples, samples * rows}, samples * rows * columns);
  Elements<float> to({rows * columns, columns, 1}, samples * rows * columns);
  const auto trained = [&](Elements<double>& states) {
    train(device, [&](auto& batch, int) {
      states.set(0), to.set(1);
      batch[before].view(device, states.view());
      batch[after].view(device, to.view());
    });
    return seen;
  };
  CHECK(trained(right) == right.memory.data() + samples / 2 * rows * columns);  // the second micro-batch
  CHECK(trained(left) != left.memory.data() + samples / 2);
  Elements<double> unchanged({rows * columns, columns, 1}, samples * rows * columns);
  unchanged.set(0);
  CHECK(right.memory == unchanged.memory);
}
TEST_CASE("the host's values of a View of device memory are copies, and another device is refused") {
  DefaultDevice device, other;
  auto all = layouts<double>();
  for (auto& elements : all) {
    elements.set(0.5);
    all[0].set(0.5);
    FieldBatch<before, after> batch{.samples = samples};
    batch[before].view(device, elements.view());
    CHECK_FALSE(batch[before].owned());
    const auto values = batch[before].values();
    CHECK(std::equal(values.begin(), values.end(), all[0].memory.begin(), all[0].memory.end()));
    const auto last = batch[before].sample(samples - 1);
    CHECK(std::equal(last.begin(), last.end(), all[0].memory.end() - rows * columns));
    CHECK_THROWS_AS(batch[before].writable(), UsageError);
  }
  Elements<float> to({rows * columns, columns, 1}, samples * rows * columns);
  SingleDevice<Surrogate> model(device, {});
  Surrogate::Batch batch{.samples = samples};
  batch[before].view(other, all[0].view());
  batch[after].view(device, to.view());
  std::string message;
  try {
    model.train_step(batch);
  } catch (const UsageError& error) {
    message = error.what();
  }
  CHECK(message.find("batch: field before is a View that was given with another device than the model's") != std::string::npos);
}
