// SPDX-License-Identifier: Apache-2.0
// covers: weft/inference/model.hpp weft/inference/sharded_model.hpp weft/inference/pool.hpp weft/data/dlpack.hpp
// A trained model as a function of Views of a GPU's memory, in the order of the caller's instance: the numbers of the same model
// in a batch of device memory, from every layout and by DLPack, on one rank and on two. The Views are of
// support/device_views.hpp.
#include "support/device_views.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <weft/data/dlpack.hpp>
#include <weft/inference/model.hpp>
#include <weft/inference/pool.hpp>
#include <weft/inference/sharded_model.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/runtime/run.hpp>

#include "inference/models.hpp"
#include "support/counted_allocations.hpp"
#include "support/message.hpp"

using namespace weft_test;
using Exec = DefaultDevice::execution_space;

/// The double's memory is that of GPU 3.
template <>
struct weft::data::detail::DlpackPlace<Exec> {
  static weft::data::dlpack::Device of(const Exec&) { return {2, 3}; }
};

namespace {

constexpr std::size_t inputs = 5, outputs = 3;

/// A matrix [rows, columns] in device memory: row-major, column-major, or a part of a larger one.
enum class Layout { right, left, part };
template <class T>
struct Matrix {
  std::size_t rows, columns;
  std::array<std::size_t, 2> strides;
  std::size_t first = 0;
  std::vector<T> memory;

  Matrix(Layout layout, std::size_t r, std::size_t c) : rows(r), columns(c), strides{c, 1}, memory(r * c, T(-77)) {
    if (layout == Layout::left) strides = {1, r};
    if (layout == Layout::part) strides = {2 * (c + 4), 2}, first = 3, memory.assign(2 * r * (c + 4) + 3, T(-77));
  }
  T& at(std::size_t i, std::size_t j) { return memory[first + i * strides[0] + j * strides[1]]; }
  void set(const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) at(i / columns, i % columns) = T(values[i]);
  }
  std::vector<double> values() {
    std::vector<double> all;
    for (std::size_t i = 0; i < rows * columns; ++i) all.push_back(double(at(i / columns, i % columns)));
    return all;
  }
  /// The elements around the matrix, which nobody writes.
  bool rest_is_unchanged() {
    std::size_t changed = 0;
    for (const T& value : memory) changed += value != T(-77);
    return changed == rows * columns;
  }
  DeviceView<T, 2> view() { return {memory.data() + first, {rows, columns}, strides}; }
  DeviceView<const T, 2> constant() { return {memory.data() + first, {rows, columns}, strides}; }
};

/// Predictions for the same rows as a batch of device memory.
template <class Model>
std::vector<double> of_batch(DefaultDevice& device, Model& model, const std::vector<double>& x) {
  Matrix<double> given(Layout::right, x.size() / inputs, inputs);
  given.set(x);
  typename Model::Batch batch{.samples = given.rows};
  batch[in].view(device, given.view());
  return model.predict(batch).values;
}
template <class Model>
void train(Model& model) {
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});
  const std::vector<double> x = numbers(16 * inputs, 7), y = numbers(16 * outputs, 8);
  typename Model::Batch batch{.samples = 16};
  batch[in].view(std::span<const double>(x), {inputs});
  batch[out].view(std::span<const double>(y), {outputs});
  for (int step = 0; step < 3; ++step) {
    model.train_step(batch);
    optimizer.step();
  }
}

}  // namespace

TEST_CASE_TEMPLATE("Views of device memory in every layout, on one rank", S, double, float) {
  DefaultDevice device;
  SingleDevice<Mlp<S>> model(device, {.inputs = inputs, .width = 48, .outputs = outputs, .dropout = 0.5});
  train(model);
  inference::Model<Mlp<S>> net(model);
  const Exec exec;
  for (const std::size_t rows : {1, 7, 37}) {
    const std::vector<double> x = numbers(rows * inputs), expected = of_batch(device, model, x);
    for (const Layout from : {Layout::right, Layout::left, Layout::part})
      for (const Layout to : {Layout::right, Layout::left, Layout::part}) {
        Matrix<double> given(from, rows, inputs), result(to, rows, outputs);
        given.set(x);
        const auto before = given.memory;
        net(exec, given.constant(), result.view());
        exec.fence();
        CHECK(result.values() == expected);
        CHECK(result.rest_is_unchanged());
        CHECK(given.memory == before);
      }
    Matrix<S> given(Layout::left, rows, inputs), result(Layout::right, rows, outputs);
    given.set(x);
    net(exec, given.view(), result.view());
    exec.fence();
    CHECK((std::is_same_v<S, float> || result.values() == expected));
  }
  CHECK(net.replicas() == 1);  // of one instance
  Matrix<double> given(Layout::right, 4, inputs), narrow(Layout::right, 4, outputs - 1);
  CHECK(message<ShapeError>([&] { net(exec, given.view(), narrow.view()); }) ==
        "weft: inference: the output is [4, 2] and the model returns [4, 3]");
}

#ifdef KOKKOS_ENABLE_OPENMP
TEST_CASE("each instance has the work of its calls") {
  DefaultDevice device;
  SingleDevice<Mlp<double>> model(device, {.inputs = inputs, .outputs = outputs});
  train(model);
  inference::Model<Mlp<double>> net(model);
  const Kokkos::OpenMP one(1), other(2);
  Matrix<double> given(Layout::left, 9, inputs), first(Layout::right, 9, outputs), second(Layout::right, 9, outputs);
  given.set(numbers(9 * inputs));
  for (int call = 0; call < 2; ++call) {
    net(one, given.view(), first.view());
    net(other, given.view(), second.view());
  }
  const Kokkos::OpenMP same = one;
  net(same, given.view(), first.view());
  CHECK(net.replicas() == 2);
  CHECK(first.values() == of_batch(device, model, numbers(9 * inputs)));
  CHECK(second.values() == first.values());
}
#endif

TEST_CASE("a warm call on an instance allocates nothing but Kokkos' memory of its launches") {
  static long on_device = 0, kernels = 0;
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, const char*, const void*, std::uint64_t) { ++on_device; });
  DefaultDevice device;
  SingleDevice<Mlp<double>> model(device, {.inputs = inputs, .outputs = outputs});
  inference::Model<Mlp<double>> net(model);
  const Exec exec;
  Matrix<double> given(Layout::left, 40, inputs), result(Layout::part, 40, outputs);
  Matrix<float> few(Layout::right, 3, inputs), some(Layout::right, 3, outputs);
  const auto allocated = [](auto&& f) {
    const long before = allocations, device_before = on_device;
    f();
    return std::array{long(allocations) - before, on_device - device_before};
  };
  const auto calls = [&] {
    net(exec, given.view(), result.view());
    net(exec, few.view(), some.view());
  };
  CHECK(allocated(calls)[1] > 0);
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback([](const char*, std::uint32_t, std::uint64_t*) { ++kernels; });
  calls();
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr);
  CHECK(kernels > 10);
  const auto launch = [&] { Kokkos::parallel_for("one", Kokkos::RangePolicy<Exec>(exec, 0, 1), [](int) {}); };
  launch();
  const long of_launch = allocated(launch)[0];
  for (int call = 0; call < 3; ++call) {
    const auto warm = allocated(calls);
    CHECK(warm[0] == kernels * of_launch);
    CHECK(warm[1] == 0);
  }
  Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
}

TEST_CASE_TEMPLATE("tp ranks together, in the order of the mesh's instance", S, double, float) {
  const typename Mlp<S>::Config config{.inputs = inputs, .width = 48, .outputs = outputs, .dropout = 0.5};
  const std::vector<double> x = numbers(9 * inputs);
  std::vector<double> expected;
  {
    DefaultDevice device;
    SingleDevice<Mlp<S>> model(device, config, {.seed = 5});
    train(model);
    expected = of_batch(device, model, x);
  }
  for (const int ranks : {1, 2}) {
    const int code = run(RunOptions{.ranks = ranks, .threads_per_rank = 4}, [&](World& world) {
      const Mesh mesh(world, axes<tp>, {.tp = std::size_t(ranks)});
      SingleDevice<Mlp<S>> model(world.device(), config, {.seed = 5});
      train(model);
      inference::ShardedModel<Mlp<S>> net(mesh, model);
      const Exec exec = world.device().exec();
      for (const Layout layout : {Layout::right, Layout::left, Layout::part}) {
        Matrix<double> given(layout, 9, inputs), result(layout, 9, outputs);
        given.set(x);
        for (int call = 0; call < 2; ++call) net(exec, given.view(), result.view());
        exec.fence();
        const std::vector<double> got = result.values();
        const double bound = std::is_same_v<S, double> ? 1e-14 : 2e-6;
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - expected[i]) < bound);
        CHECK(result.rest_is_unchanged());
      }
#ifdef KOKKOS_ENABLE_OPENMP
      Matrix<double> given(Layout::right, 9, inputs), result(Layout::right, 9, outputs);
      CHECK(message<UsageError>([&] { net(Kokkos::OpenMP(1), given.view(), result.view()); }) ==
            "weft: inference: ShardedModel was called with another execution space instance than the mesh's, in whose order its "
            "messages are: net(world.device().exec(), u, next)");
#endif
    });
    CHECK(code == 0);
  }
  int differing = 0;
  run(RunOptions{.ranks = 2, .threads_per_rank = 4}, [&](World& world) {
    const Mesh mesh(world, axes<tp>, {.tp = 2});
    inference::ShardedModel<Mlp<S>> net(mesh, config, [](auto&) {});
    Matrix<double> given(Layout::left, 9, inputs), result(Layout::right, 9, outputs);
    given.set(numbers(9 * inputs, std::uint64_t(world.rank())));
    const std::string text = message<UsageError>([&] { net(world.device().exec(), given.view(), result.view()); });
    if (world.rank() == 0) differing = text.find("the inputs of inference::ShardedModel") != std::string::npos;
  });
  CHECK(differing == 1);
}

TEST_CASE("DLPack tensors of device memory, both ways") {
  DefaultDevice device;
  SingleDevice<Mlp<double>> model(device, {.inputs = inputs, .outputs = outputs});
  train(model);
  inference::Model<Mlp<double>> net(model);
  const Exec exec;
  constexpr std::size_t rows = 6;
  const std::vector<double> x = numbers(rows * inputs), expected = of_batch(device, model, x);
  // A View of the device's memory space.
  struct Placed : DeviceView<double, 2> {
    using memory_space = Exec::memory_space;
  };
  const auto tensor_of = [&](Matrix<double>& matrix) { return data::to_dlpack(device, Placed{matrix.view()}); };

  Matrix<double> given(Layout::left, rows, inputs), result(Layout::part, rows, outputs);
  given.set(x);
  data::dlpack::ManagedTensor* const exported = tensor_of(given);
  CHECK(exported->dl_tensor.device.device_type == 2);
  CHECK(exported->dl_tensor.device.device_id == 3);
  CHECK(exported->dl_tensor.data == given.memory.data());
  CHECK(exported->dl_tensor.strides[1] == std::int64_t(rows));
  const data::Dlpack u = data::Dlpack::take(exported), y = data::Dlpack::take(tensor_of(result));
  net(exec, u.array<double>(device), y.writable<double>(device));
  exec.fence();
  CHECK(result.values() == expected);
  CHECK(result.rest_is_unchanged());

  Mlp<double>::Batch batch{.samples = rows};
  batch[in].view(device, u.array<double>(device));
  CHECK(model.predict(batch).values == expected);

  const std::string begin = "weft: dlpack: the tensor is on a device of type 2 (DLDeviceType), number ";
  CHECK(message<UsageError>([&] { u.array<double>(); }) ==
        begin + "3: give weft's device, u.array<T>(device), or copy it to host memory, x.cpu()");
  CHECK_THROWS_AS(u.writable<double>(), UsageError);
  CHECK_THROWS_AS(u.array<float>(device), UsageError);
  data::dlpack::ManagedTensor* const elsewhere = tensor_of(given);
  elsewhere->dl_tensor.device.device_id = 1;
  const data::Dlpack v = data::Dlpack::take(elsewhere);
  CHECK(message<UsageError>([&] { v.array<double>(device); }) ==
        begin + "1, and weft computes on type 2, number 3: copy it there");
  CHECK_THROWS_AS(v.writable<double>(device), UsageError);
  const data::Dlpack host = data::Dlpack::take(data::to_dlpack(std::vector<double>(6), {2, 3}));
  CHECK_THROWS_AS(host.array<double>(device), UsageError);
}
