// SPDX-License-Identifier: Apache-2.0
// The time of one operation on two ranks of one thread: on DTensors, on typed tensors with the same placements, and on DTensors
// that record gradients, with their backward. None of these operations sends a message except the last one, so on small tensors
// the time is overhead. Prints lines of JSON: microseconds per operation, the best window and the median.
//
//   bench_dtensor_operations [windows]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/dtensor/operations.hpp>
#include <weft/operations/arithmetic.hpp>
#include <weft/operations/functions.hpp>
#include <weft/operations/products.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;
using dtensor::replicate, dtensor::shard;
using Exec = DefaultDevice::execution_space;
using Rows = Tensor<float, Exec, Shard<tp, 0>>;
using Whole = Tensor<float, Exec, Replicated<tp>>;

namespace {

struct Meter {
  World& world;
  int windows;
  std::size_t extent;

  /// Prints the time of f(), of which a window has `repeats`.
  template <class F>
  void operator()(const char* form, const char* operation, int repeats, F&& f) const {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (int window = -1; window < windows; ++window) {  // the first one warms up
      world.communicator().barrier();
      const auto begin = Clock::now();
      for (int i = 0; i < repeats; ++i) f();
      if (window >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / repeats);
    }
    std::sort(times.begin(), times.end());
    if (world.rank() == 0)
      std::printf("{\"form\": \"%s\", \"operation\": \"%s\", \"extent\": %zu, \"best_us\": %.2f, \"median_us\": %.2f}\n", form,
                  operation, extent, times.front(), times[times.size() / 2]);
  }
};

/// Square tensors of this extent, x and y cut by rows, w whole.
void measure(World& world, int windows, std::size_t extent) {
  const Meter meter{world, windows, extent};
  const int repeats = extent <= 64 ? 200 : 4;
  auto& device = world.device();
  const dtensor::DeviceMesh mesh(world.communicator());
  const auto drawn = [&](const dtensor::Placements& placements, std::uint64_t seed) {
    return dtensor::normal<float>(device, mesh, {extent, extent}, placements, seed);
  };
  const auto x = drawn({shard(0)}, 1), y = drawn({shard(0)}, 2), w = drawn({replicate()}, 3), columns = drawn({shard(1)}, 4);
  const auto typed = [&]<class X>(const DTensor<float>& from, std::type_identity<X>) {
    X to(device, from.to_local().shape());
    weft::kernels::cast<float, float>(device, to.size(), from.to_local().data(), to.data());
    return to;
  };
  const Rows tx = typed(x, std::type_identity<Rows>()), ty = typed(y, std::type_identity<Rows>());
  const Whole tw = typed(w, std::type_identity<Whole>());

  meter("typed", "x + y", repeats, [&] { (void)operations::operator+(tx, ty); });
  meter("dtensor", "x + y", repeats, [&] { (void)(x + y); });
  meter("typed", "relu(x)", repeats, [&] { (void)operations::relu(tx); });
  meter("dtensor", "relu(x)", repeats, [&] { (void)relu(x); });
  meter("typed", "x w", repeats, [&] { (void)contract<0, 1>(tx, tw); });
  meter("dtensor", "x w", repeats, [&] { (void)matmul(x, w); });

  auto a = drawn({shard(0)}, 5), b = drawn({replicate()}, 6);
  a.requires_grad(), b.requires_grad();
  meter("dtensor, backward too", "sum(relu(a b))", repeats, [&] {
    sum(relu(matmul(a, b))).backward();
    a.zero_grad(), b.zero_grad();
  });
  meter("dtensor, one message", "columns x, added", repeats, [&] { (void)matmul(columns, x).redistribute({replicate()}); });
}

}  // namespace

int main(int argc, char** argv) {
  const int windows = argc > 1 ? std::max(1, std::atoi(argv[1])) : 41;
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(2).set_disable_warnings(true));
  return run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    measure(world, windows, 64);
    measure(world, windows, 1024);
  });
}
