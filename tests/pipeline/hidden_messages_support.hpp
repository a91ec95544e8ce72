// SPDX-License-Identifier: Apache-2.0
#pragma once
// A pipeline's step with a delay in every message, compared with the simulation of its schedule, on any backend. Ranks have
// simulated clocks, which only the stages' computation and messages move. So the makespan of the executor's own calls is exact,
// on a busy machine, too.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/runtime/run.hpp>
#include <weft/testing/delay_messages.hpp>

#include "bench/schedules/sleeping.hpp"

namespace weft_test {

using namespace weft_bench;

/// A clock that keeps the time from the first computation to the end of the last.
struct StepClock : testing::SimulatedClock {
  double first = -1, last = -1;
  void pass(double seconds) override {
    if (first < 0) first = now();
    SimulatedClock::pass(seconds);
    last = now();
  }
};

/// The makespan of a step whose actions take 1 s and whose messages take `message` seconds.
struct Makespans {
  double simulated = 0, measured = 0;
  std::uint64_t messages = 0;  // that rank 0 received in the step
};

/// The simulation of a table whose pairs run one member after the other, as they do here.
inline double simulated(schedule::Table table, double message) {
  for (schedule::Order& order : table.orders)
    for (schedule::Action& action : order) action.with_next = false;
  return schedule::simulate(table, {1, 1, 1}, message).makespan;
}

/// `delay(communicator, clock)` is the communicator with delays; each rank's `network` has them.
template <class Delay>
Makespans makespans_of(World& world, Delay delay, testing::SlowNetwork& network, const std::string& name,
                       std::size_t micro_batches, double message) {
  const int ranks = int(world.size());
  const auto clock = std::make_shared<StepClock>();
  World slow(delay(world.communicator(), clock), world.device());
  const Mesh<pp> mesh(slow, {.pp = std::size_t(ranks)});
  const auto chosen = schedule::choose(name);
  const auto recording = std::make_shared<schedule::TimelineRecorder>();
  PipelineParallel<SleepingModel> model(
      mesh, {.layers = std::size_t(ranks * chosen->chunks()), .forward_s = 1, .input_s = 1, .weight_s = 1, .clock = clock},
      {.pipeline = {.schedule = chosen, .timeline = recording}});
  Batch batch{.tokens = std::vector<std::int32_t>(micro_batches), .targets = std::vector<std::int32_t>(micro_batches)};
  batch.sequences = batch.micro_batches = micro_batches;
  batch.length = 1;
  model.train_step(batch);  // in the first step the stages agree on shapes
  world.communicator().barrier();
  network.set({});
  world.communicator().barrier();
  slow.communicator().barrier();  // the clocks of all ranks have one time
  network.set({.seconds = message});
  world.communicator().barrier();
  clock->first = -1;
  const testing::DelayCounts before = testing::delayed(mesh.comm(pp{}));
  model.train_step(batch);
  const testing::DelayCounts after = testing::delayed(mesh.comm(pp{}));
  std::array<double, 2> ends{-clock->first, clock->last};
  world.communicator().all_reduce(ends, Reduction::max);
  return {simulated(recording->table(), message), ends[0] + ends[1], after.messages - before.messages};
}

/// The schedules of one stage a rank and of two, as arguments of TEST_CASE_TEMPLATE: each case has the watchdog's time.
#define WEFT_TEST_SCHEDULES                                                                           \
  schedule::GPipe, schedule::OneForwardOneBackward, schedule::ZeroBubbleH1, schedule::Interleaved<2>, \
      schedule::InterleavedZeroBubble<2>, schedule::Zbv, schedule::DualPipeV

/// The makespan of the schedule with messages of several lengths, in actions. Only receives that are posted far ahead hide those
/// that are longer than an action. On every rank; rank 0 checks.
template <class Delay>
void check_makespans(World& world, Delay delay, testing::SlowNetwork& network, const std::string& name) {
  for (const double message : {0.0, 0.3, 0.7, 1.2, 2.0, 4.0}) {
    const Makespans seen = makespans_of(world, delay, network, name, 2 * world.size(), message);
    if (world.rank() != 0) continue;
    INFO(name, ", a message of ", message, " s: simulated ", seen.simulated, " s, measured ", seen.measured, " s");
    if (std::getenv("WEFT_TEST_LONG") != nullptr)
      std::printf("| %s | %.1f | %.1f | %.1f | %.3f |\n", name.c_str(), message, seen.simulated, seen.measured,
                  seen.measured / seen.simulated);
    CHECK((seen.messages > 0) == (world.size() > 1));
    CHECK(seen.measured < 1.001 * seen.simulated);
    CHECK(seen.measured > 0.999 * seen.simulated);
  }
}

}  // namespace weft_test
