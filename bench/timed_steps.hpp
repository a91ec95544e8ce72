// SPDX-License-Identifier: Apache-2.0
#pragma once
// Timed steps of a program that a script compares with PyTorch's.
//
//   weft_bench::time_steps(world, {"images", 100}, steps, warm_up, [&](int step) { ...; return loss; });   // prints JSON

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include <weft/mesh/world.hpp>

namespace weft_bench {

/// Runs step(0), step(1), ... between barriers. Rank 0 prints `counted`, what a step trains on, by its name; the milliseconds of
/// each step after the warm-up; the processor time of such a step over all thread ranks; and all losses.
template <class Step>
void time_steps(weft::World& world, std::pair<const char*, std::size_t> counted, int steps, int warm_up, const Step& step) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times, losses;
  double busy = 0;  // processor time at the end of the warm-up
  const auto processor_ms = [] {
    std::timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return double(now.tv_sec) * 1e3 + double(now.tv_nsec) * 1e-6;
  };
  for (int number = 0; number < warm_up + steps; ++number) {
    world.communicator().barrier();
    if (number == warm_up) busy = processor_ms();
    const auto started = Clock::now();
    losses.push_back(step(number));
    world.communicator().barrier();
    if (number >= warm_up) times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - started).count());
  }
  if (world.rank() != 0) return;
  const auto list = [](const char* name, const std::vector<double>& values) {
    std::printf("\"%s\": [", name);
    for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.9g", i == 0 ? "" : ", ", values[i]);
    std::printf("]");
  };
  std::printf("{\"%s\": %zu, \"processor_ms\": %.9g, ", counted.first, counted.second, (processor_ms() - busy) / steps);
  list("ms", times);
  std::printf(", ");
  list("losses", losses);
  std::printf("}\n");
}

}  // namespace weft_bench
