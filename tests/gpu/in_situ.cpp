// SPDX-License-Identifier: Apache-2.0
// Views of a GPU's memory for a model beside a solver (./tests/run --gpu): training batches, calls of inference models on a
// stream of the solver, and DLPack tensors, of several layouts. The numbers are those of the same values in host memory.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include <weft/data/dlpack.hpp>
#include <weft/inference/model.hpp>
#include <weft/inference/sharded_model.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/optim/sgd.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/runtime/run.hpp>

#include "inference/models.hpp"

using namespace weft;
using namespace weft_test;

namespace {

using Net = Mlp<float>;
constexpr std::size_t inputs = 5, outputs = 3, rows = 37;
int failures = 0;
void check(bool good, const char* what) {
  std::printf("%-6s %s\n", good ? "ok" : "FAILED", what);
  failures += !good;
}

/// A View of device memory with these values.
template <class V>
V filled(V view, const std::vector<double>& values) {
  Kokkos::View<double**, Kokkos::LayoutRight> right("right", view.extent(0), view.extent(1));
  const Kokkos::View<const double**, Kokkos::LayoutRight, Kokkos::HostSpace> host(values.data(), view.extent(0), view.extent(1));
  Kokkos::deep_copy(right, host);
  Kokkos::parallel_for(
      "fill", values.size(), KOKKOS_LAMBDA(std::size_t i) {
        view(i / view.extent(1), i % view.extent(1)) = right(i / view.extent(1), i % view.extent(1));
      });
  Kokkos::fence();
  return view;
}
template <class V>
std::vector<double> values_of(const V& view) {
  Kokkos::View<double**, Kokkos::LayoutRight> right("right", view.extent(0), view.extent(1));
  Kokkos::parallel_for(
      "read", right.size(), KOKKOS_LAMBDA(std::size_t i) {
        right(i / view.extent(1), i % view.extent(1)) = view(i / view.extent(1), i % view.extent(1));
      });
  std::vector<double> values(right.size());
  const Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> host(values.data(), view.extent(0), view.extent(1));
  Kokkos::deep_copy(host, right);
  return values;
}

/// A loss and predictions of a model that is trained on these fields.
template <class Give>
std::vector<double> trained(DefaultDevice& device, Give&& give) {
  SingleDevice<Net> model(device, {.inputs = inputs, .outputs = outputs}, {.seed = 2});
  optim::Sgd optimizer(model, {.learning_rate = 0.1});
  Net::Batch batch{.samples = rows};
  give(batch);
  for (int step = 0; step < 3; ++step) model.train_step(batch), optimizer.step();
  std::vector<double> all = model.predict(batch).values;
  all.push_back(model.evaluate(batch));
  return all;
}

template <class Layout>
void views(World& world, const char* name) {
  const std::vector<double> x = numbers(rows * inputs), y = numbers(rows * outputs, 2);
  auto& device = world.device();
  Kokkos::View<double**, Layout> u("u", rows + 2, inputs + 1), next("next", rows, outputs + 3), targets("targets", rows, outputs);
  const auto given = filled(Kokkos::subview(u, std::pair(2ul, rows + 2), std::pair(1ul, inputs + 1)), x);
  const auto result = Kokkos::subview(next, Kokkos::ALL, std::pair(2ul, 2ul + outputs));
  filled(targets, y);
  std::printf("%s\n", name);

  const auto expected = trained(device, [&](auto& batch) {
    batch[in].view(std::span<const double>(x), {inputs});
    batch[out].view(std::span<const double>(y), {outputs});
  });
  check(expected == trained(device,
                            [&](auto& batch) {
                              batch[in].view(device, given);
                              batch[out].view(device, targets);
                            }),
        "training on Views of device memory");

  SingleDevice<Net> model(device, {.inputs = inputs, .outputs = outputs}, {.seed = 2});
  Net::Batch batch{.samples = rows};
  batch[in].view(std::span<const double>(x), {inputs});
  const std::vector<double> predicted = model.predict(batch).values;
  inference::Model<Net> net(model);
  const auto streams = Kokkos::Experimental::partition_space(device.exec(), 1, 1);
  for (const auto& exec : streams) {
    Kokkos::deep_copy(next, -77);
    for (int call = 0; call < 3; ++call) net(exec, given, result);
    exec.fence();
    check(values_of(result) == predicted, "a call on a stream of the solver");
  }
  check(net.replicas() == 2, "a replica for each stream");

  Kokkos::deep_copy(next, -77);
  inference::ShardedModel<Net> sharded(Mesh(world, axes<tp>, {.tp = 1}), model);
  sharded(device.exec(), given, result);
  device.exec().fence();
  check(values_of(result) == predicted, "a sharded model on one rank");

  auto* const exported = data::to_dlpack(device, given);
  check(exported->dl_tensor.device.device_type == 2 && exported->dl_tensor.device.device_id == device.exec().cuda_device(),
        "a DLPack tensor of this GPU");
  const data::Dlpack tensor = data::Dlpack::take(exported), into = data::Dlpack::take(data::to_dlpack(device, result));
  Kokkos::deep_copy(next, -77);
  net(device.exec(), tensor.array<double>(device), into.writable<double>(device));
  device.exec().fence();
  check(values_of(result) == predicted, "DLPack tensors in and out");
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run<comm::Threads>(RunOptions{.ranks = 1, .argc = argc, .argv = argv}, [](World& world) {
    views<Kokkos::LayoutRight>(world, "LayoutRight");
    views<Kokkos::LayoutLeft>(world, "LayoutLeft");
  });
  return code != 0 || failures != 0;
}
