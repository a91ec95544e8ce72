// SPDX-License-Identifier: Apache-2.0
// Makespan of every schedule on thread ranks with sleeping stages, measured and proven. Prints a table, and writes JSON to a
// file.
//   bench_schedules_makespan [--ranks 4] [--micro-batches 8] [--unit-ms 8] [--message-ms 0] [--steps 3] [--output FILE]
//                            [--pictures FOLDER]

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/pipeline/schedule/check.hpp>
#include <weft/pipeline/schedule/dynamic.hpp>
#include <weft/pipeline/schedule/timeline.hpp>
#include <weft/pipeline/schedule/visualise.hpp>
#include <weft/runtime/run.hpp>
#include <weft/testing/delay_messages.hpp>
#include <weft/trace/metrics.hpp>

#include "sleeping.hpp"

using namespace weft_bench;

namespace {

struct Options {
  int ranks = 4, micro_batches = 8, steps = 3;
  double unit_ms = 8, message_ms = 0;
  std::string output, pictures;
};

struct Measured {
  schedule::Table table;
  std::vector<schedule::Timeline> steps;  // without the first, which warms up
};

Measured measure(const Options& o, const std::string& name) {
  Measured result;
  const auto network = std::make_shared<testing::SlowNetwork>(testing::Transit{.seconds = o.message_ms / 1000});
  const int code = run<comm::Threads>(RunOptions{.ranks = o.ranks}, [&](World& world) {
    World delayed(o.message_ms > 0 ? testing::delay_messages(world.communicator(), network) : world.communicator(),
                  world.device());
    const Mesh<pp> mesh(delayed, {.pp = std::size_t(o.ranks)});
    const auto chosen = schedule::choose(name);
    const auto recording = std::make_shared<schedule::TimelineRecorder>();
    // A chunk costs the same in every schedule: chunks of half the layers would hide the effect of latency.
    SleepingConfig config{.layers = std::size_t(o.ranks * chosen->chunks())};
    config.forward_s = config.input_s = config.weight_s = o.unit_ms / 1000;
    PipelineParallel<SleepingModel> model(mesh, config, {.pipeline = {.schedule = chosen, .timeline = recording}});
    Batch batch{.tokens = std::vector<std::int32_t>(std::size_t(o.micro_batches), 0),
                .targets = std::vector<std::int32_t>(std::size_t(o.micro_batches), 0)};
    batch.sequences = batch.micro_batches = std::size_t(o.micro_batches);
    batch.length = 1;
    for (int step = 0; step <= o.steps; ++step) {
      model.train_step(batch);
      auto timeline = schedule::measured(*recording, mesh.comm(pp{}));
      if (world.rank() != 0 || step == 0) continue;
      result.table = recording->table();
      result.steps.push_back(std::move(timeline));
    }
  });
  if (code != 0) std::exit(code);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Makespan of every schedule, as measured and as proven", "bench schedules");
  app.add_option("--ranks", o.ranks, "Thread ranks of the pipeline")->capture_default_str()->check(CLI::Range(1, 16));
  app.add_option("--micro-batches", o.micro_batches, "Micro-batches a step")->capture_default_str()->check(CLI::Range(1, 64));
  app.add_option("--unit-ms", o.unit_ms, "Sleep of a forward, an input gradient and a weight gradient of one stage")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1000.0));
  app.add_option("--message-ms", o.message_ms, "Time of every message between ranks")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0));
  app.add_option("--steps", o.steps, "Steps measured; the median counts")->capture_default_str()->check(CLI::Range(1, 100));
  app.add_option("--output", o.output, "JSON file");
  app.add_option("--pictures", o.pictures, "Folder for an SVG and a trace of each schedule as measured; it must exist");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos;  // for several runs

  std::printf("%d ranks, %d micro-batches, forward = input gradient = weight gradient = %g ms a stage, a message %g ms\n\n",
              o.ranks, o.micro_batches, o.unit_ms, o.message_ms);
  std::printf("%-16s%12s%12s%10s%12s%12s%8s\n", "schedule", "proven", "measured", "ratio", "bubble", "measured", "");
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  bool all = true;
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zbv", "dualpipev"}) {
    Measured measured = measure(o, name);
    std::sort(measured.steps.begin(), measured.steps.end(), [](const auto& a, const auto& b) { return a.makespan < b.makespan; });
    const schedule::Timeline& median = measured.steps[measured.steps.size() / 2];
    for (schedule::Order& order : measured.table.orders)  // one member of a pair runs after the other
      for (schedule::Action& action : order) action.with_next = false;
    const schedule::Timeline planned = schedule::simulate(measured.table, {}, o.message_ms / o.unit_ms);
    const auto bubble = [](const schedule::Timeline& t) {  // mean fraction of a rank's time without work
      double busy = 0;
      for (const double rank : t.busy) busy += rank;
      return 1 - busy / (double(t.busy.size()) * t.makespan);
    };
    const double proven_ms = planned.makespan * o.unit_ms, ms = median.makespan * 1e3, ratio = ms / proven_ms;
    const bool within = ratio <= 1.05;
    all = all && within;
    std::printf("%-16s%9.1f ms%9.1f ms%10.3f%10.1f %%%10.1f %%%s\n", name, proven_ms, ms, ratio, 100 * bubble(planned),
                100 * bubble(median), within ? "" : "   above 1.05");
    std::fflush(stdout);
    json.push_back({{"schedule", name},
                    {"ranks", o.ranks},
                    {"micro_batches", o.micro_batches},
                    {"unit_ms", o.unit_ms},
                    {"message_ms", o.message_ms},
                    {"proven_ms", proven_ms},
                    {"measured_ms", ms},
                    {"ratio", ratio},
                    {"proven_bubble", bubble(planned)},
                    {"measured_bubble", bubble(median)}});
    if (!o.pictures.empty()) {
      trace::write_text(o.pictures + "/" + name + ".svg", schedule::to_svg(measured.table, median, " s"));
      trace::write_text(o.pictures + "/" + name + ".json", schedule::to_trace(measured.table, median, 1e6));
    }
  }
  if (!o.output.empty()) trace::write_text(o.output, json.dump(1) + "\n");
  return all ? 0 : 1;
}
