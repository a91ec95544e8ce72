// SPDX-License-Identifier: Apache-2.0
// Thread ranks under ThreadSanitizer: operations, many in flight, random delays and a rank that throws. Neither Kokkos nor
// OpenMP is started: their thread pools use means of synchronisation that the sanitizer cannot see.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include <weft/comm/threads.hpp>

#include "comm/conformance.hpp"

using namespace weft;

namespace {

void random_delays(const Communicator& c, unsigned seed) {
  std::mt19937 engine(seed * 100 + unsigned(c.rank()));
  std::vector<float> x(2000, 1.0f), small(8, 1.0f), message(3000), arrived(3000);
  for (int step = 0; step < 5; ++step) {
    Request reduced = c.all_reduce_async(x);
    std::this_thread::sleep_for(std::chrono::microseconds(engine() % 300));
    c.all_reduce(small, Reduction::max);
    c.send_recv(message, (c.rank() + 1) % c.size(), arrived, (c.rank() + c.size() - 1) % c.size());
    if (engine() % 2) reduced.test();
    reduced.wait();
  }
}

bool injected(int ranks, unsigned seed) {
  try {
    comm::run_threads(ranks, [&](const Communicator& c) {
      std::vector<float> x(3000, 1.0f);
      for (unsigned step = 0;; ++step) {
        Request reduced = c.all_reduce_async(x);
        if (c.rank() == int(seed) % ranks && step == seed % 7) throw Error("injected");
        c.barrier();
        reduced.wait();
      }
    });
  } catch (const Error& error) {
    return std::strcmp(error.what(), "weft: injected") == 0;
  }
  return false;
}

}  // namespace

int main() {
  for (const int ranks : {2, 3, 4}) comm::run_threads(ranks, [](const Communicator& c) { weft_test::check_briefly(c); });
  for (unsigned seed = 0; seed < 50; ++seed) {
    const int ranks = 2 + int(seed % 4);
    comm::run_threads(ranks, [&](const Communicator& c) { random_delays(c, seed); });
    if (!injected(ranks, seed)) return 1;
  }
  std::puts("no races were found");
  return 0;
}
