// SPDX-License-Identifier: Apache-2.0
// A warm call of inference::Model allocates nothing, from the host or from Kokkos, also for Views that are copied, for several
// sizes in turn. Threads share as many objects as run at the same time.

#include <doctest/doctest.h>

#include <barrier>
#include <thread>

#include <weft/inference/pool.hpp>

#include "inference/models.hpp"
#include "support/counted_allocations.hpp"

using namespace weft_test;

namespace {
template <class F>
long allocated(F&& f) {
  const long before = allocations;
  f();
  return allocations - before;
}
}  // namespace

TEST_CASE_TEMPLATE("no allocation in a warm call", M, Mlp<float>, Mlp<double>, Chain<float>, Chain<double>) {
  using S = typename M::scalar;
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, const char*, const void*, std::uint64_t) { ++allocations; });
  DefaultDevice device;
  SingleDevice<M> model(device, {});
  inference::Model<M> net(model);
  // oneDNN, which multiplies more than four rows of float, allocates the lists of its arguments.
  constexpr std::size_t rows = std::is_same_v<S, float> ? 4 : 100;
  S x[3] = {1, 2, 3}, y[1];
  Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> many("x", rows, 3), results("y", rows, 1);
  Kokkos::View<S**, Kokkos::LayoutRight, Kokkos::HostSpace> few("x", 3, 3), some("y", 3, 1);
  const auto calls = [&] {
    net(x, y);
    net(many, results);
    net(few, some);
  };
  CHECK(allocated(calls) > 0);
  CHECK(allocated(calls) == 0);
  CHECK(allocated([&] {
          for (int i = 0; i < 100; ++i) calls();
        }) == 0);
  Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
}

TEST_CASE("a pool makes as many objects as threads hold at the same time") {
  constexpr int threads = 4;
  inference::detail::Pool<int> pool;
  std::barrier together(threads);
  long counted = -1, pooled = -1;
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread)
    all.emplace_back([&, thread] {
      const auto take = [&] { return pool.take([] { return std::make_unique<int>(0); }); };
      {
        const auto held = take();
        together.arrive_and_wait();  // all hold one
      }
      together.arrive_and_wait();
      const long before = allocations;
      together.arrive_and_wait();
      for (int i = 0; i < 1000; ++i) ++*take();
      together.arrive_and_wait();
      if (thread == 0) counted = allocations - before, pooled = long(pool.size());
    });
  for (std::thread& one : all) one.join();
  CHECK(pooled == threads);
  CHECK(counted == 0);
}
