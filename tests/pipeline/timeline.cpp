// SPDX-License-Identifier: Apache-2.0
// covers: weft/pipeline/schedule/timeline.hpp
// The timeline as measured: every action of the last step in its place, never before its input, not shorter than its work, and
// drawn by the same pictures as the planned one. Stages sleep, so that it may be compared with the proof.

#include <doctest/doctest.h>

#include <memory>

#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/pipeline/schedule/visualise.hpp>
#include <weft/runtime/run.hpp>

#include "bench/schedules/sleeping.hpp"

using namespace weft_bench;

TEST_CASE("a step as measured") {
  for (const char* name : {"1f1b", "interleaved", "zbv", "dualpipev"}) {
    constexpr double unit = 0.004;
    schedule::Table table;
    schedule::Timeline seen;
    const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
      const Mesh<pp> mesh(world, {.pp = 2});
      const auto chosen = schedule::choose(name);
      const auto recording = std::make_shared<schedule::TimelineRecorder>();
      PipelineParallel<SleepingModel> model(
          mesh, {.layers = std::size_t(2 * chosen->chunks()), .forward_s = unit, .input_s = unit, .weight_s = unit},
          {.pipeline = {.schedule = chosen, .timeline = recording}});
      const Batch batch{.tokens = {0, 0, 0, 0}, .targets = {0, 0, 0, 0}, .sequences = 4, .length = 1, .micro_batches = 4};
      model.train_step(batch);
      model.evaluate(batch);  // does not change the recording
      auto timeline = schedule::measured(*recording, mesh.comm(pp{}));
      if (world.rank() == 0) {
        table = recording->table();
        seen = std::move(timeline);
      }
    });
    INFO(name);
    CHECK(code == 0);
    const schedule::Timeline planned = schedule::simulate(table);
    REQUIRE(seen.start.size() == 2);
    std::size_t shorter = 0, early = 0;
    std::vector<double> forward(std::size_t(table.stages()) * 4, -1);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      REQUIRE(seen.start[rank].size() == table.orders[rank].size());
      for (std::size_t i = 0; i < seen.start[rank].size(); ++i) {
        const schedule::Action& action = table.orders[rank][i];
        shorter += seen.end[rank][i] - seen.start[rank][i] < unit * schedule::Costs().of(action.what);
        if (i > 0) early += seen.start[rank][i] < seen.end[rank][i - 1];
        if (action.what == schedule::Op::F)
          forward[std::size_t(table.stage(int(rank), action.chunk) * 4 + action.micro)] = seen.start[rank][i];
      }
    }
    for (std::size_t i = 4; i < forward.size(); ++i)
      early +=
          forward[i] < forward[i - 4] + 0.75 * unit;  // a stage after the one before it, within the accuracy of the ranks' clocks
    CHECK(shorter == 0);
    CHECK(early == 0);
    // A pair is planned as one piece of work; run one after the other, the first result leaves earlier.
    CHECK(seen.makespan >= 0.9 * unit * planned.makespan);
    CHECK(schedule::to_svg(table, seen).find("<svg") == 0);
    const std::string trace = schedule::to_trace(table, seen, 1e6);
    std::size_t events = 0, actions = 0;
    for (std::size_t at = 0; (at = trace.find("\"ph\": \"X\"", at)) != std::string::npos; ++at) ++events;
    for (const auto& order : table.orders) actions += order.size();
    CHECK(events == actions);
    CHECK(trace.find("overlapped") == std::string::npos);
  }
}
