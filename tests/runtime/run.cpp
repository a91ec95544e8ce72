// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/run_result.hpp
// covers: weft/runtime/guard.hpp weft/runtime/signals.hpp
// `run` inside a process whose Kokkos is already there: worlds, devices, exit codes, again and again.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <Kokkos_Core.hpp>

#include <weft/comm/run_result.hpp>
#include <weft/core/version.hpp>
#include <weft/runtime/guard.hpp>
#include <weft/runtime/run.hpp>
#include <weft/runtime/signals.hpp>

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
  CHECK(Kokkos::is_initialized());  // a run that did not start Kokkos must not end it
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

TEST_CASE("the exit code is that of the first error, or the function's result") {
  CHECK(run(RunOptions{.ranks = 2}, [](World&) { throw UsageError("test: said once on standard error, code 2"); }) == 2);
  CHECK(run(RunOptions{.ranks = 2}, [](World& world) {
          if (world.rank() == 1) throw DivergedError("test: said once on standard error, code 3");
          world.communicator().barrier();
        }) == 3);
  CHECK(run(RunOptions{.ranks = 2}, [](World&) { throw 5; }) == 1);
  CHECK(run(RunOptions{.ranks = 3}, [](World& world) { return world.rank() == 1 ? 9 : 0; }) == 9);
  CHECK(run(RunOptions{.ranks = -1}, [](World&) {}) == 2);
}

TEST_CASE("an error that a program met before it had ranks is its end") {
  bool called = false;
  const auto program = [&](World&) { called = true; };
  RunOptions options{.ranks = 2};
  options.refused = std::make_exception_ptr(DivergedError("test: said once on standard error, code 3"));
  CHECK(run(options, program) == 3);
  std::string name = "folder/program", steps = "--steps", rehearse = "--rehearse=2", two = "2";
  char* known[] = {name.data(), rehearse.data(), nullptr};
  const RunOptions taken = only_run_options(2, known, {.ranks = 3});
  CHECK(taken.refused == nullptr);
  CHECK(taken.ranks == 3);
  CHECK(std::string(taken.rehearse) == "2");
  char* unknown[] = {name.data(), steps.data(), two.data(), nullptr};
  CHECK(run(only_run_options(3, unknown), program) == 2);
  CHECK(!called);
}

TEST_CASE("the versions of a program name weft, the compiler, Kokkos, oneDNN and the program's own libraries") {
  const std::string text = runtime::versions("program", ", Open MPI 4.1.4");
  CHECK(text.starts_with("program, weft " + std::string(version()) + " ("));
  CHECK(text.ends_with(", Open MPI 4.1.4)"));
  CHECK((text.find(" (g++ ") != text.npos || text.find(" (clang ") != text.npos));
  CHECK(text.find(", Kokkos ") < text.find(", oneDNN "));
}

TEST_CASE("WEFT_RANKS is the default number of ranks") {
  setenv("WEFT_RANKS", "3", 1);
  CHECK(run(RunOptions{}, [](World& world) { return world.size(); }) == 3);
  CHECK(run(RunOptions{.ranks = 2}, [](World& world) { return world.size(); }) == 2);
  unsetenv("WEFT_RANKS");
}

namespace {
/// Like Ctrl-C and kill: sends a signal to the process. Returns once it was received.
void ask_to_stop(int number) {
  ::kill(::getpid(), number);
  while (comm::stop_signal() != number) std::this_thread::yield();
}
bool blocks(int number) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, number) == 1;
}
}  // namespace

TEST_CASE("a handler never runs on a thread that computes: kernels keep numbers below their stack pointer") {
  CHECK(run(RunOptions{.ranks = 2, .signals = Signals::always}, [](World&) {
          bool blocked = blocks(SIGINT) && blocks(SIGTERM) && !blocks(SIGUSR1);
          std::thread([&] { blocked = blocked && blocks(SIGTERM); }).join();  // a thread started by a library
          return blocked ? 0 : 1;
        }) == 0);
  CHECK(!blocks(SIGTERM));
}

TEST_CASE("an interrupt is a flag that every rank can see") {
  // doctest has its own handlers, which must be replaced here.
  for (const int number : {SIGINT, SIGTERM})
    CHECK(run(RunOptions{.ranks = 2, .signals = Signals::always}, [=](World& world) {
            world.communicator().barrier();
            if (world.rank() == 0) ask_to_stop(number);
            world.communicator().barrier();
            return world.interrupted() ? 4 : 0;
          }) == 4);
  CHECK(run(RunOptions{.ranks = 1}, [](World& world) { return world.interrupted() ? 4 : 0; }) == 0);
}

TEST_CASE("a request to stop is agreed by all ranks") {
  CHECK(run(RunOptions{.ranks = 3, .signals = Signals::always}, [](World& world) -> int {
          if (world.stop_requested()) return 1;
          if (world.rank() == 1) ask_to_stop(SIGTERM);
          return world.stop_requested() ? InterruptedError::code : 2;
        }) == 130);
}

namespace {
volatile std::sig_atomic_t own_signals = 0;
void own_handler(int) { own_signals = own_signals + 1; }
}  // namespace

TEST_CASE("a program that handles signals itself requests a stop, before a run or in it, also in a run inside of a run") {
  comm::request_stop(SIGTERM);
  CHECK(run(RunOptions{.ranks = 2, .signals = Signals::never}, [](World& world) { return world.stop_requested() ? 5 : 0; }) == 5);
  comm::detail::stop_state.signal = 0;
  CHECK(run(RunOptions{.ranks = 1, .signals = Signals::always}, [](World& world) {
          const int inner =
              run(RunOptions{.ranks = 2, .signals = Signals::always}, [](World& own) { return own.interrupted() ? 4 : 0; });
          if (inner != 0 || world.interrupted()) return 1;
          ask_to_stop(SIGINT);  // the outer run's handler is still there
          return world.interrupted() ? 6 : 2;
        }) == 6);
  CHECK(comm::stop_signal() == 0);
}

TEST_CASE("handlers that a program has installed stay, and signals that it ignores are ignored") {
  void (*const interrupt)(int) = std::signal(SIGINT, own_handler);
  void (*const terminate)(int) = std::signal(SIGTERM, SIG_IGN);
  void (*const file_size)(int) = std::signal(SIGXFSZ, own_handler);
  for (const Signals signals : {Signals::unless_handled, Signals::never})
    CHECK(run(RunOptions{.ranks = 1, .signals = signals}, [](World& world) {
            for (const int number : {SIGINT, SIGTERM, SIGXFSZ}) std::raise(number);
            return world.interrupted() ? 4 : 0;
          }) == 0);
  CHECK(own_signals == 4);
  std::signal(SIGXFSZ, SIG_DFL);
  CHECK(run(RunOptions{.ranks = 1}, [](World&) { std::raise(SIGXFSZ); }) == 0);  // otherwise it would end the process
  void (*const restored)(int) = std::signal(SIGXFSZ, file_size);
  CHECK((restored == SIG_DFL));
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, terminate);
}

TEST_CASE("a wait that has to end gives 130") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(run(RunOptions{.ranks = 2, .stop_s = 0.2, .signals = Signals::always}, [](World& world) {
          if (world.rank() == 0) {
            ask_to_stop(SIGINT);
            world.communicator().barrier();
          } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(800));
          }
        }) == 130);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}
