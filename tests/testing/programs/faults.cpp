// SPDX-License-Identifier: Apache-2.0
// Ranks of any backend with faults in their calls, for tests/testing/test_faults.py:
//
//   program_faults conformance SEED            delays, late messages, another order: every operation has the same result
//   program_faults fail SEED CALL RANK         that rank throws at that call; exit code 1
//   program_faults caught 0                    rank 1 catches an error thrown during an operation in flight, and continues
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <weft/runtime/run.hpp>
#include <weft/testing/inject_faults.hpp>
#ifdef WEFT_TEST_MPI
#include <weft/comm/mpi.hpp>
#endif
#include <weft/comm/tcp.hpp>

#include "comm/conformance.hpp"
#include "comm/random_calls.hpp"

using namespace weft;

namespace {

/// Memory without access rights after it is freed: a later access ends the program with SIGSEGV.
template <class T>
struct Guarded {
  using value_type = T;
  Guarded() = default;
  template <class U>
  Guarded(const Guarded<U>&) {}
  T* allocate(std::size_t n) {
    void* memory = ::mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t n) { ::mprotect(memory, n * sizeof(T), PROT_NONE); }
  friend bool operator==(const Guarded&, const Guarded&) { return true; }
};
using Buffer = std::vector<float, Guarded<float>>;

/// Some of everything, short and long, until a call throws.
void work(const Communicator& c) {
  const auto n = std::size_t(c.size());
  const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
  Buffer x(3000, 1.0f), y(50, 2.0f), z(40000, 3.0f), part(7000), all(n * 7000), sent(all), split(all);
  Buffer message(40), arrived(40), long_message(30000), long_arrived(30000);
  for (;;) {
    Request reduced = c.all_reduce_async(x);
    c.send_recv(message, next, arrived, previous);
    Request shared = c.broadcast_async(z, 0), gathered = c.all_gather_async(part, all);
    Request sending = c.send_async(long_message, next, 1), receiving = c.recv_async(long_arrived, previous, 1);
    c.barrier();
    reduced.wait();
    Request few = c.all_reduce_async(y), exchanged = c.all_to_all_async(sent, split);
    c.all_reduce(x);
    for (Request* request : {&shared, &gathered, &sending, &receiving, &few, &exchanged}) request->wait();
  }
}

void go_on(const Communicator& c) {
  Buffer part(7000), all(std::size_t(c.size()) * part.size());
  try {
    if (c.rank() != 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Request gathered = c.all_gather_async(part, all);
    if (c.rank() == 1) throw std::runtime_error("an error of the program's own");
  } catch (const std::runtime_error&) {
    Buffer().swap(part);
    Buffer().swap(all);
  }
  c.barrier();
}

}  // namespace

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
    if (how == "fail") work(c);
    if (how == "caught") return go_on(real.communicator());
    weft_test::check_briefly(c);
    weft_test::check_random_calls<float>(c, unsigned(faults.seed), 20);
    const testing::FaultCounts counts = testing::injected(c);
    if (real.rank() == 0)
      std::printf("faults: %s, %llu calls, %llu delays, %llu late, %llu reordered\n", std::string(real.backend()).c_str(),
                  (unsigned long long)counts.calls, (unsigned long long)counts.delays, (unsigned long long)counts.late,
                  (unsigned long long)counts.reordered);
  };
  return run<comm::Threads,
#ifdef WEFT_TEST_MPI
             comm::Mpi,
#endif
             comm::Tcp>(RunOptions{.ranks = std::getenv("WEFT_TEST_THREADS") ? std::atoi(std::getenv("WEFT_TEST_THREADS")) : 0,
                                   .deadline_s = 60,
                                   .argc = argc,
                                   .argv = argv},
                        body);
}
