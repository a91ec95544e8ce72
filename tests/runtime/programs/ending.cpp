// SPDX-License-Identifier: Apache-2.0
// A program that ends in the way named by its first argument; test_endings.py checks its output and exit code.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/mesh/mesh.hpp>
#include <weft/runtime/run.hpp>
#ifdef WEFT_TEST_MPI
#include <weft/comm/mpi.hpp>
#endif
#include <weft/comm/tcp.hpp>

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
    if (how == "throw" && world.rank() == last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others leave the all_reduce and wait in the barrier
      throw std::runtime_error("boom\nin two lines");
    }
    if (how == "throw-first" && world.rank() == 0) throw DivergedError("ten steps in a row");
    if (how == "full") throw std::bad_alloc();
    if (how == "usage") throw LayoutError("heads(6) % tp(4) != 0");
    if (how == "return") return world.rank() == last ? 7 : 0;
    if (how == "busy") {
      if (world.rank() == last) throw Error("boom");
      std::this_thread::sleep_for(std::chrono::seconds(60));  // like a computation, which cannot be stopped
    }
    if (how == "interrupt") {
      for (std::vector<int> stop{0}; stop[0] == 0; c.all_reduce(stop, Reduction::max)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        stop[0] = world.interrupted() ? 1 : 0;
      }
      if (world.rank() == 0) std::printf("stopped cleanly\n");
      return 0;
    }
    if (how == "stop") {  // the same with World's functions
      while (!world.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (world.rank() == 0) std::printf("stopped cleanly\n");
      return InterruptedError::code;
    }
    if (how.starts_with("absent")) {  // every rank but the last one waits for it, in vain
      if (how == "absent-heeded") (void)world.interrupted();
      if (world.rank() == last) std::this_thread::sleep_for(std::chrono::seconds(60));
      if (how == "absent-message") c.recv(x, last, 3);
      else if (how == "absent-split") (void)c.split(0, 0, "half");
      else c.barrier();
    }
    if (how == "deaf") {  // no operation, and no check for stop requests
      std::this_thread::sleep_for(std::chrono::seconds(60));
    }
    if (how == "unheeded") {  // many operations, and no check for stop requests
      for (;;) c.all_reduce(x);
    }
    if (how == "lines") {
      for (int line = 0; line < 3000 && world.rank() == 0; ++line)
        std::printf("line %d of many that fill a disk or a pipe\n", line);
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
    if (how == "lost" && world.rank() == 0) c.send(std::vector<int>{1, 2, 3}, last, 7);  // short: it is copied, and forgotten
    if (how == "circle") {
      const Communicator tp = c.split(0, 0, "tp"), dp = c.split(0, 0, "dp");
      (world.rank() == 0 ? tp : dp).barrier();
      (world.rank() == 0 ? dp : tp).barrier();
    }
    if (how == "short-of-one" && world.rank() != last) c.all_reduce(x);
    if (how == "seeds") agree(c, {{"--steps", 10}, {"--seed", world.rank() == last ? 2 : 1}});
    if (how == "degrees") Mesh<dp, tp>(world, {.tp = world.rank() == last ? 1 : std::size_t(world.size())});
    if (how == "deadline") {
      if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
      c.barrier();
    }
    if (how != "short-of-one") c.barrier();
    return 0;
  };
  RunOptions options{.argc = argc, .argv = argv};
  if (argc > 2) options.ranks = std::atoi(argv[2]);
  return run<comm::Threads,
#ifdef WEFT_TEST_MPI
             comm::Mpi,
#endif
             comm::Tcp>(options, body);
}
