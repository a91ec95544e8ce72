// SPDX-License-Identifier: Apache-2.0
// Ranks of any backend with faults in their calls, for tests/testing/test_faults.py:
//
//   program_faults conformance SEED            delays, late messages, another order: every operation gives what it gives without
//   program_faults fail SEED CALL RANK         that rank throws at that call; exit code 1
#include <cstdio>
#include <cstdlib>
#include <string>

#include <weft/runtime/run.hpp>
#include <weft/testing/inject_faults.hpp>
#ifdef WEFT_TEST_MPI
#include <weft/comm/mpi.hpp>
#endif
#ifdef WEFT_TEST_GLOO
#include <weft/comm/gloo.hpp>
#endif

#include "comm/conformance.hpp"
#include "comm/random_calls.hpp"

using namespace weft;

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string how = argv[1];
  testing::Faults faults{
      .seed = std::strtoull(argv[2], nullptr, 10), .delay = 0.05, .longest_delay_s = 5e-4, .late = 0.4, .reorder = true};
  if (how == "fail" && argc == 5) {
    faults.fail_at = std::strtoull(argv[3], nullptr, 10);
    faults.fail_on = std::atoi(argv[4]);
  }
  const auto body = [&](World& real) {
    const Communicator c = testing::inject_faults(real.communicator(), faults);
    if (how == "fail") {
      std::vector<float> x(3000, 1.0f), message(40), arrived(40);
      for (;;) {
        Request reduced = c.all_reduce_async(x);
        c.send_recv(message, (c.rank() + 1) % c.size(), arrived, (c.rank() + c.size() - 1) % c.size());
        c.barrier();
        reduced.wait();
      }
    }
    weft_test::check_briefly(c);
    weft_test::check_random_calls<float>(c, unsigned(faults.seed), 20);
    const testing::FaultCounts counts = testing::injected(c);
    if (real.rank() == 0)
      std::printf("faults: %s, %llu calls, %llu delays, %llu late, %llu reordered\n", std::string(real.backend()).c_str(),
                  (unsigned long long)counts.calls, (unsigned long long)counts.delays, (unsigned long long)counts.late,
                  (unsigned long long)counts.reordered);
  };
  return run<comm::Threads
#ifdef WEFT_TEST_MPI
             ,
             comm::Mpi
#endif
#ifdef WEFT_TEST_GLOO
             ,
             comm::Gloo
#endif
             >(RunOptions{.ranks = std::getenv("WEFT_TEST_THREADS") ? std::atoi(std::getenv("WEFT_TEST_THREADS")) : 0,
                          .deadline_s = 60,
                          .argc = argc,
                          .argv = argv},
               body);
}
