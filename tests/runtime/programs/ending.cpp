// SPDX-License-Identifier: Apache-2.0
// A program that ends in the way that its first argument names; test_endings.py looks at its output and exit code.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <weft/runtime/run.hpp>
#ifdef WEFT_TEST_MPI
#include <weft/comm/mpi.hpp>
#endif
#ifdef WEFT_TEST_GLOO
#include <weft/comm/gloo.hpp>
#endif

using namespace weft;

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "well";
  const auto body = [&](World& world) -> int {
    const Communicator& c = world.communicator();
    std::vector<float> x(20000, 1.0f);
    c.all_reduce(x);
    const int last = world.size() - 1;
    if (world.rank() == 0) {
      std::printf("%d ranks as %s\n", world.size(), std::string(world.backend()).c_str());
      std::fflush(stdout);
    }
    if (how == "throw" && world.rank() == last) throw std::runtime_error("boom\nin two lines");
    if (how == "throw-first" && world.rank() == 0) throw DivergedError("ten steps in a row");
    if (how == "full") throw std::bad_alloc();
    if (how == "usage") throw LayoutError("heads(6) % tp(4) != 0");
    if (how == "return") return world.rank() == last ? 7 : 0;
    if (how == "busy") {
      if (world.rank() == last) throw Error("boom");
      std::this_thread::sleep_for(std::chrono::seconds(60));  // as if it computed: it cannot be told to stop
    }
    if (how == "interrupt") {
      for (std::vector<int> stop{0}; stop[0] == 0; c.all_reduce(stop, Reduction::max)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        stop[0] = world.interrupted() ? 1 : 0;
      }
      if (world.rank() == 0) std::printf("stopped cleanly\n");
      return 0;
    }
    if (how == "long") {  // in the middle of long messages at any time
      std::vector<float> whole(std::size_t(1) << 20, 1.0f), all(whole.size() * std::size_t(c.size()));
      for (;;) {
        c.all_gather(whole, all);
        c.broadcast(whole, 0);
        c.all_reduce(whole, Reduction::max);
      }
    }
    if (how == "mismatch") {
      if (world.rank() == 0) c.barrier();
      else c.all_reduce(x);
    }
    if (how == "deadline") {
      if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
      c.barrier();
    }
    c.barrier();
    return 0;
  };
  RunOptions options{.argc = argc, .argv = argv};
  if (argc > 2) options.ranks = std::atoi(argv[2]);
  return run<comm::Threads
#ifdef WEFT_TEST_MPI
             ,
             comm::Mpi
#endif
#ifdef WEFT_TEST_GLOO
             ,
             comm::Gloo
#endif
             >(options, body);
}
