// SPDX-License-Identifier: Apache-2.0
// covers: weft/testing/delay_messages.hpp weft/pipeline/executor.hpp weft/pipeline/schedule/simulate.hpp
// Messages between stages are hidden behind computation. Stages sleep and every message takes a time of its own, so the makespan
// of a step is known: that of the schedule's simulation with the same times.

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/runtime/run.hpp>
#include <weft/testing/delay_messages.hpp>

#include "bench/schedules/sleeping.hpp"

using namespace weft_bench;

namespace {

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
double simulated_like(schedule::Table table, const schedule::Timeline& timeline, double message) {
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

Makespans makespans_of(const std::string& name, int ranks, std::size_t micro_batches, double message) {
  Makespans result;
  const auto network = std::make_shared<testing::SlowNetwork>();
  const int code = run<comm::Threads>(RunOptions{.ranks = ranks}, [&](World& world) {
    World slow(testing::delay_messages(world.communicator(), network), world.device());
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
    for (bool within = false; seen.steps < 9 && !within; ++seen.steps) {
      network->set({.seconds = message});
      const std::uint64_t before = testing::delayed(mesh.comm(pp{})).messages;
      model.train_step(batch);
      seen.messages = testing::delayed(mesh.comm(pp{})).messages - before;
      world.communicator().barrier();
      network->set({});
      world.communicator().barrier();
      const schedule::Timeline timeline = schedule::measured(*recording, mesh.comm(pp{}));  // the same on every rank
      if (seen.steps == 0) continue;  // the stages do not agree on shapes yet
      const double simulated = simulated_like(recording->table(), timeline, message);
      schedule::Table table = recording->table();
      for (schedule::Order& order : table.orders)
        for (schedule::Action& action : order) action.with_next = false;
      seen.least = schedule::simulate(table, {unit, unit, unit}, message).makespan;
      if (seen.steps == 1 || timeline.makespan / simulated < seen.measured / seen.simulated)
        seen.measured = timeline.makespan, seen.simulated = simulated;
      within = seen.measured < 1.04 * seen.simulated;
    }
    if (world.rank() == 0) result = seen;
  });
  CHECK(code == 0);
  return result;
}

}  // namespace

TEST_CASE("with a delay in every message the makespan is that of the simulation") {
  const bool all = std::getenv("WEFT_TEST_LONG") != nullptr;
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zbv", "dualpipev"})
    for (const double message :
         all ? std::vector<double>{0, 0.3 * unit, 0.7 * unit, 1.2 * unit} : std::vector<double>{0.7 * unit}) {
      const Makespans seen = makespans_of(name, 4, 8, message);
      INFO(name, ", a message of ", message, " s: simulated ", seen.simulated, " s, measured ", seen.measured, " s, steps ",
           seen.steps);
      if (all)
        std::printf("| %s | %.0f ms | %.0f ms | %.0f ms | %.3f |\n", name.c_str(), 1e3 * message, 1e3 * seen.simulated,
                    1e3 * seen.measured, seen.measured / seen.simulated);
      CHECK(seen.messages > 0);
      CHECK(seen.measured < 1.05 * seen.simulated);
      CHECK(seen.measured > 0.99 * seen.least);
    }
}

TEST_CASE("a simulated message takes time between ranks and none on one rank") {
  const schedule::Table line = schedule::table<schedule::OneForwardOneBackward>(3, 1);
  CHECK(schedule::simulate(line, {1, 1, 1}, 0.5).makespan == 3 * 1 + 3 * 2 + 4 * 0.5);
  const schedule::Table turn = schedule::table<schedule::Zbv>(2, 4);  // its stages 1 and 2 are on one rank
  const schedule::Timeline without = schedule::simulate(turn), with = schedule::simulate(turn, {}, 0.25);
  CHECK(with.start[1][0] == without.start[1][0] + 0.25);
  std::size_t second = 0;
  while (turn.orders[1][second].chunk != 1) ++second;
  CHECK(with.start[1][second] - with.end[1][0] == without.start[1][second] - without.end[1][0]);
  CHECK(with.makespan > without.makespan);
}
