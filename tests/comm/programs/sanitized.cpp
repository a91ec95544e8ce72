// SPDX-License-Identifier: Apache-2.0
// Thread ranks under ThreadSanitizer: operations, many in flight, random delays and a rank that throws; and the loop of a mesh of
// TCP connections with changed bytes. Neither Kokkos nor OpenMP is started: the sanitizer cannot see the synchronisation of their
// thread pools. Argument: number of seeds (default 50; by hand 1000).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <weft/comm/ring.hpp>
#include <weft/comm/threads.hpp>
#include <weft/testing/inject_faults.hpp>

#include "comm/conformance.hpp"
#include "comm/meshes.hpp"
#include "comm/random_calls.hpp"
#include "support/figure.hpp"

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

// One collective for which all wait, then more than there are slots, started at once. A rank may reuse the slots of the first one
// while another has only just left it, and must have read all of it by then.
bool burst(const Communicator& c, unsigned seed) {
  std::mt19937 own(seed * 100 + unsigned(c.rank())), same(seed);
  const auto nap = [&] {
    if (own() % 2) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
  };
  const int burst = 17 + int(same() % 40);
  bool good = true;
  for (int round = 0; round < 4; ++round) {
    float one = 1;
    c.all_reduce(std::span(&one, 1));
    good = good && one == float(c.size());
    nap();
    std::vector<std::vector<float>> values(std::size_t(burst), std::vector<float>(same() % 2 ? 4 : 600, 1.0f));
    std::vector<Request> requests;
    for (auto& x : values) requests.push_back(c.all_reduce_async(x));
    nap();
    for (Request& request : requests) request.wait();
    for (const auto& x : values)
      for (const float value : x) good = good && value == float(c.size());
  }
  return good;
}

// Pieces and their sums go round, too long to be copied when sent; every rank adds its number to each piece it meets.
bool ring(const Communicator& c) {
  std::vector<float> piece(3000, float(c.rank())), spare(3000), sum(3000), arriving(3000);
  bool good = true;
  const auto work = [&](int step, std::span<float> here, auto&& progress) {
    for (std::size_t i = 0; i < here.size(); ++i) good = good && here[i] == float((c.rank() - step + c.size()) % c.size());
    progress();
  };
  const auto add = [&](int step, std::span<float> total) {
    for (float& value : total) value = (step == 0 ? 0 : value) + float(1 + c.rank());
  };
  const auto home = comm::ring_exchange(c, std::span(piece), std::span(spare), std::span(sum), std::span(arriving), work, add);
  for (const float value : home) good = good && value == float(c.size() * (c.size() + 1) / 2);
  return good;
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

// The same calls with faults: naps at every place, messages that are late, requests that complete in another order, a rank that
// throws.
bool faults(int ranks, unsigned seed) {
  comm::run_threads(ranks, [&](const Communicator& c) {
    const testing::Faults delays{.seed = seed, .delay = 0.1, .longest_delay_s = 1e-4, .late = 0.4, .reorder = true};
    weft_test::check_random_calls<float>(testing::inject_faults(c, delays), seed, 2);
    random_delays(testing::inject_faults(c, delays), seed);
  });
  try {
    comm::run_threads(ranks, [&](const Communicator& c) {
      const Communicator faulty = testing::inject_faults(c, {.seed = seed, .failure = 0.02, .late = 0.4, .reorder = true});
      for (;;) random_delays(faulty, seed);
    });
  } catch (const testing::InjectedError&) {
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned seeds = argc > 1 ? unsigned(std::strtoul(argv[1], nullptr, 10)) : 50;
  for (const int ranks : {2, 3, 4}) comm::run_threads(ranks, [](const Communicator& c) { weft_test::check_briefly(c); });
  for (unsigned seed = 0; seed < seeds; ++seed) {
    const int ranks = 2 + int(seed % 4);
    comm::run_threads(ranks, [&](const Communicator& c) { random_delays(c, seed); });
    bool passed = true;
    comm::run_threads(ranks, [&](const Communicator& c) {
      int good = ring(c) && burst(c, seed);
      c.all_reduce(std::span(&good, 1), Reduction::min);
      if (c.rank() == 0) passed = good;
    });
    if (!passed) return 1;
    const std::string fault = weft_test::fault_of(weft_test::Disturbance(seed % weft_test::disturbances), seed);
    if (!fault.empty()) {
      std::printf("%s\n", fault.c_str());
      return 1;
    }
    if (!injected(ranks, seed) || !faults(ranks, seed)) return 1;
  }
  weft_test::figure(21, seeds, "iterations of thread ranks with random delays under ThreadSanitizer", 0,
                    "reports");  // else it has ended
  return 0;
}
