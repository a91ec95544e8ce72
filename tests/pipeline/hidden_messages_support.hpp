// SPDX-License-Identifier: Apache-2.0
#pragma once
// A pipeline's step with a delay in every message, compared with the simulation of its schedule, on any backend. Stages sleep and
// every message takes a time of its own, so the makespan is known: that of the simulation with the same times. The machine's
// times are measured in the step: how long actions take, and how late a blocked rank goes on when its message is there.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/runtime/run.hpp>
#include <weft/testing/delay_messages.hpp>

#include "bench/schedules/sleeping.hpp"

namespace weft_test {

using namespace weft_bench;

/// Seconds of an action. A machine whose waits are late for them gets longer ones.
constexpr double shortest_unit = 0.03, longest_unit = 0.12;

/// The makespan of a step whose messages take `message` seconds, as simulated with the times of its actions and the mean lateness
/// of its waits, and as measured.
/// Other processes of the machine only make a step slower, so the first step within 4 % ends the measurement.
struct Makespans {
  double simulated = 0, measured = 0;  // of the step that is nearest to its simulation
  double late = 0;                     // seconds of a wait of this step, as the simulation has them
  double least = 0;                    // with sleeps that last as long as asked
  bool within = false;                 // 4 % of the simulation; the same on every rank
  int steps = 0;
  std::uint64_t messages = 0;  // that rank 0 received in a step
};

/// The makespan if each action takes its time of the timeline. One member of a pair runs after the other.
inline double simulated_like(schedule::Table table, const schedule::Timeline& timeline, double message) {
  std::map<std::tuple<int, schedule::Op, int>, double> times;  // by stage, kind and micro-batch
  for (std::size_t rank = 0; rank < table.orders.size(); ++rank)
    for (std::size_t i = 0; i < table.orders[rank].size(); ++i) {
      schedule::Action& action = table.orders[rank][i];
      action.with_next = false;
      times[{table.stage(int(rank), action.chunk), action.what, action.micro}] = timeline.end[rank][i] - timeline.start[rank][i];
    }
  const auto cost = [&](int stage, const schedule::Action& action) { return times.at({stage, action.what, action.micro}); };
  return schedule::simulate(table, cost, message).makespan;
}

/// `delay(communicator)` is the communicator with delays; each rank's `network` has them.
template <class Delay>
Makespans makespans_of(World& world, Delay delay, testing::SlowNetwork& network, const std::string& name,
                       std::size_t micro_batches, double unit, double message) {
  const int ranks = int(world.size());
  World slow(delay(world.communicator()), world.device());
  const Mesh<pp> mesh(slow, {.pp = std::size_t(ranks)});
  const auto chosen = schedule::choose(name);
  const auto recording = std::make_shared<schedule::TimelineRecorder>();
  PipelineParallel<SleepingModel> model(
      mesh, {.layers = std::size_t(ranks * chosen->chunks()), .forward_s = unit, .input_s = unit, .weight_s = unit},
      {.pipeline = {.schedule = chosen, .timeline = recording}});
  Batch batch{.tokens = std::vector<std::int32_t>(micro_batches), .targets = std::vector<std::int32_t>(micro_batches)};
  batch.sequences = batch.micro_batches = micro_batches;
  batch.length = 1;
  Makespans seen;
  for (; seen.steps < 6 && !seen.within; ++seen.steps) {
    network.set({.seconds = message});
    const testing::DelayCounts before = testing::delayed(mesh.comm(pp{}));
    model.train_step(batch);
    const testing::DelayCounts after = testing::delayed(mesh.comm(pp{}));
    seen.messages = after.messages - before.messages;
    world.communicator().barrier();
    network.set({});
    world.communicator().barrier();
    const schedule::Timeline timeline = schedule::measured(*recording, mesh.comm(pp{}));  // the same on every rank
    if (seen.steps == 0) continue;                                                        // no shapes are agreed yet
    std::array<double, 2> waits{after.late_seconds - before.late_seconds, double(after.waits - before.waits)};
    world.communicator().all_reduce(waits);
    // At most a twentieth of an action: a rank that is blocked for longer does not wait for the machine.
    const double late = std::min(waits[0] / std::max(waits[1], 1.0), 0.05 * unit);
    const double simulated = simulated_like(recording->table(), timeline, message + late);
    schedule::Table table = recording->table();
    for (schedule::Order& order : table.orders)
      for (schedule::Action& action : order) action.with_next = false;
    seen.least = schedule::simulate(table, {unit, unit, unit}, message).makespan;
    if (seen.steps == 1 || timeline.makespan / simulated < seen.measured / seen.simulated)
      seen.measured = timeline.makespan, seen.simulated = simulated, seen.late = late;
    seen.within = seen.measured < 1.04 * seen.simulated;
  }
  return seen;
}

/// The schedules of one stage a rank and of two, as arguments of TEST_CASE_TEMPLATE: each case has the watchdog's time.
#define WEFT_TEST_SCHEDULES                                                                           \
  schedule::GPipe, schedule::OneForwardOneBackward, schedule::ZeroBubbleH1, schedule::Interleaved<2>, \
      schedule::InterleavedZeroBubble<2>, schedule::Zbv, schedule::DualPipeV

/// The schedule with messages of 0.7 actions, and GPipe with messages of 4, which only receives that are posted further ahead
/// hide. On every rank; rank 0 checks.
template <class Delay>
void check_makespans(World& world, Delay delay, testing::SlowNetwork& network, const std::string& name) {
  const bool all = std::getenv("WEFT_TEST_LONG") != nullptr;
  std::vector<double> messages{0.7};  // in units
  if (all) messages = {0, 0.3, 0.7, 1.2, 2, 4};
  else if (name == "gpipe") messages.push_back(4);
  for (const double units : messages) {
    // A receive that is posted late costs a part of a unit, the lateness of a busy machine does not grow with the unit.
    Makespans seen;
    double unit = shortest_unit;
    for (; !seen.within && unit <= longest_unit; unit *= 2)
      seen = makespans_of(world, delay, network, name, 2 * world.size(), unit, units * unit);
    const double message = units * unit / 2;
    if (world.rank() != 0) continue;
    INFO(name, ", a message of ", message, " s: simulated ", seen.simulated, " s, measured ", seen.measured, " s, steps ",
         seen.steps, ", waits late by ", seen.late, " s");
    if (all)
      std::printf("| %s | %.0f ms | %.2f ms | %.0f ms | %.0f ms | %.3f |\n", name.c_str(), 1e3 * message, 1e3 * seen.late,
                  1e3 * seen.simulated, 1e3 * seen.measured, seen.measured / seen.simulated);
    CHECK((seen.messages > 0) == (world.size() > 1));
    CHECK(seen.measured < 1.05 * seen.simulated);
    CHECK(seen.measured > 0.99 * seen.least);
  }
}

}  // namespace weft_test
