// SPDX-License-Identifier: Apache-2.0
// `run` inside a process whose Kokkos is already there: worlds, devices, exit codes, again and again.
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <set>

#include <Kokkos_Core.hpp>

#include <weft/runtime/run.hpp>

#include "comm/conformance.hpp"

using namespace weft;

TEST_CASE("every rank gets its place, a communicator and a device of its own") {
  for (const int ranks : {1, 2, 4, 8}) {
    std::set<int> seen;
    std::set<void*> devices;
    std::mutex mutex;
    const int code = run<comm::Threads>(RunOptions{.ranks = ranks}, [&](World& world) {
      const std::lock_guard lock(mutex);
      seen.insert(world.rank());
      devices.insert(&world.device());
      if (world.size() != ranks || world.backend() != "threads" || world.interrupted()) seen.clear();
    });
    CHECK(code == 0);
    CHECK(seen.size() == std::size_t(ranks));
    CHECK(devices.size() == std::size_t(ranks));
  }
  CHECK(Kokkos::is_initialized());  // not ended by a run that did not begin it
}

TEST_CASE("ranks compute on their devices and reduce views, ordered on the instance") {
  const int code = run(RunOptions{.ranks = 4}, [](World& world) {
    const auto& exec = world.device().exec();
    Kokkos::View<double*> x(Kokkos::view_alloc(exec, "x"), 10000), all(Kokkos::view_alloc(exec, "all"), 40000);
    const int rank = world.rank();
    Kokkos::parallel_for(Kokkos::RangePolicy(exec, 0, 10000), [=](int i) { x(i) = rank + i; });
    world.communicator().all_gather(exec, x, all);
    Request request = world.communicator().all_reduce_async(exec, x);
    request.wait();
    for (int i = 0; i < 10000; ++i)
      if (x(i) != 6 + 4 * i || all(20000 + i) != 2 + i) throw Error("wrong sum");
    Kokkos::View<double**, Kokkos::LayoutLeft> matrix("matrix", 4, 4);
    world.communicator().all_reduce(matrix);
    try {
      world.communicator().all_reduce(Kokkos::subview(matrix, 1, Kokkos::ALL()));
    } catch (const ShapeError&) {
      return 5;
    }
    return 0;
  });
  CHECK(code == 5);
}

TEST_CASE("exit codes are those of the first error, or what the function returns") {
  CHECK(run(RunOptions{.ranks = 2}, [](World&) { throw UsageError("test: said once on standard error, code 2"); }) == 2);
  CHECK(run(RunOptions{.ranks = 2}, [](World& world) {
          if (world.rank() == 1) throw DivergedError("test: said once on standard error, code 3");
          world.communicator().barrier();
        }) == 3);
  CHECK(run(RunOptions{.ranks = 2}, [](World&) { throw 5; }) == 1);
  CHECK(run(RunOptions{.ranks = 3}, [](World& world) { return world.rank() == 1 ? 9 : 0; }) == 9);
  CHECK(run(RunOptions{.ranks = -1}, [](World&) {}) == 2);
}

TEST_CASE("WEFT_RANKS is the default number of ranks") {
  setenv("WEFT_RANKS", "3", 1);
  CHECK(run(RunOptions{}, [](World& world) { return world.size(); }) == 3);
  CHECK(run(RunOptions{.ranks = 2}, [](World& world) { return world.size(); }) == 2);
  unsetenv("WEFT_RANKS");
}

TEST_CASE("an interrupt is a flag that every rank can see") {
  CHECK(run(RunOptions{.ranks = 2}, [](World& world) {
          world.communicator().barrier();
          if (world.rank() == 0) std::raise(SIGINT);
          world.communicator().barrier();
          return world.interrupted() ? 4 : 0;
        }) == 4);
  CHECK(run(RunOptions{.ranks = 1}, [](World& world) { return world.interrupted() ? 4 : 0; }) == 0);
}
