// SPDX-License-Identifier: Apache-2.0
#pragma once
// A pipeline's step with a delay in every message, compared with the simulation of its schedule, on any backend. Stages sleep and
// every message takes a time of its own, so the makespan is known: that of the simulation with the same times.

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
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

constexpr double unit = 0.03;

/// The makespan of a step whose messages take `message` seconds, as simulated with the mean times of its actions and as measured.
/// Other processes of the machine only make a step slower, so the first step within 4 % ends the measurement.
struct Makespans {
  double simulated = 0, measured = 0;  // of the step that is nearest to its simulation
  double least = 0;                    // with sleeps that last as long as asked
  int steps = 0;
  std::uint64_t messages = 0;  // that rank 0 received in a step
};

/// The makespan if each action takes the mean time of its kind on its stage. One member of a pair runs after the other.
inline double simulated_like(schedule::Table table, const schedule::Timeline& timeline, double message) {
  std::map<std::pair<int, schedule::Op>, std::pair<double, int>> times;  // sum and count
  for (std::size_t rank = 0; rank < table.orders.size(); ++rank)
    for (std::size_t i = 0; i < table.orders[rank].size(); ++i) {
      schedule::Action& action = table.orders[rank][i];
      action.with_next = false;
      auto& [sum, count] = times[{table.stage(int(rank), action.chunk), action.what}];
      sum += timeline.end[rank][i] - timeline.start[rank][i];
      ++count;
    }
  const auto cost = [&](int stage, schedule::Op what) {
    const auto& [sum, count] = times.at({stage, what});
    return sum / count;
  };
  return schedule::simulate(table, cost, message).makespan;
}

/// `delay(communicator)` is the communicator with delays; each rank's `network` has them.
template <class Delay>
Makespans makespans_of(World& world, Delay delay, testing::SlowNetwork& network, const std::string& name,
                       std::size_t micro_batches, double message) {
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
  for (bool within = false; seen.steps < 15 && !within; ++seen.steps) {
    network.set({.seconds = message});
    const std::uint64_t before = testing::delayed(mesh.comm(pp{})).messages;
    model.train_step(batch);
    seen.messages = testing::delayed(mesh.comm(pp{})).messages - before;
    world.communicator().barrier();
    network.set({});
    world.communicator().barrier();
    const schedule::Timeline timeline = schedule::measured(*recording, mesh.comm(pp{}));  // the same on every rank
    if (seen.steps == 0) continue;                                                        // no shapes are agreed yet
    const double simulated = simulated_like(recording->table(), timeline, message);
    schedule::Table table = recording->table();
    for (schedule::Order& order : table.orders)
      for (schedule::Action& action : order) action.with_next = false;
    seen.least = schedule::simulate(table, {unit, unit, unit}, message).makespan;
    if (seen.steps == 1 || timeline.makespan / simulated < seen.measured / seen.simulated)
      seen.measured = timeline.makespan, seen.simulated = simulated;
    within = seen.measured < 1.04 * seen.simulated;
  }
  return seen;
}

inline const std::vector<std::string> one_stage_a_rank{"gpipe", "1f1b", "zb-h1"};
inline const std::vector<std::string> two_stages_a_rank{"interleaved", "interleaved-zb", "zbv", "dualpipev"};

/// Each schedule with messages of 0.7 actions, and GPipe with messages of 4, which only receives that are posted further ahead
/// hide. On every rank; rank 0 checks.
template <class Delay>
void check_makespans(World& world, Delay delay, testing::SlowNetwork& network, const std::vector<std::string>& schedules) {
  const bool all = std::getenv("WEFT_TEST_LONG") != nullptr;
  for (const std::string& name : schedules) {
    std::vector<double> messages{0.7 * unit};
    if (all) messages = {0, 0.3 * unit, 0.7 * unit, 1.2 * unit, 2 * unit, 4 * unit};
    else if (name == "gpipe") messages.push_back(4 * unit);
    for (const double message : messages) {
      const Makespans seen = makespans_of(world, delay, network, name, 2 * world.size(), message);
      if (world.rank() != 0) continue;
      INFO(name, ", a message of ", message, " s: simulated ", seen.simulated, " s, measured ", seen.measured, " s, steps ",
           seen.steps);
      if (all)
        std::printf("| %s | %.0f ms | %.0f ms | %.0f ms | %.3f |\n", name.c_str(), 1e3 * message, 1e3 * seen.simulated,
                    1e3 * seen.measured, seen.measured / seen.simulated);
      CHECK((seen.messages > 0) == (world.size() > 1));
      CHECK(seen.measured < 1.05 * seen.simulated);
      CHECK(seen.measured > 0.99 * seen.least);
    }
  }
}

}  // namespace weft_test
