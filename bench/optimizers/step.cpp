// SPDX-License-Identifier: Apache-2.0
// The time of an optimizer's step: AdamW, and Muon with each matrix on a home rank or on every rank that holds a piece of it. A
// GPT of --width and --layers, on thread ranks of one thread, in layouts that divide matrices over dp, tp or both.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <weft/core/output_file.hpp>
#include <weft/runtime/ending.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

using Clock = std::chrono::steady_clock;
using Model = FullyShardedDataParallel<TensorParallel<models::Gpt>>;

Batch batch_of(const models::GptConfig& config, std::size_t rank, std::size_t ranks) {
  Batch batch{.sequences = 1, .length = config.sequence};
  batch.first_sequence = rank;
  for (std::size_t i = 0; i < batch.length; ++i) {
    batch.tokens.push_back(std::int32_t(key_of(rank, i) % config.vocabulary));
    batch.targets.push_back(std::int32_t(key_of(ranks, i, rank) % config.vocabulary));
  }
  return batch;
}

struct Line {
  std::string layout, rule;
  double milliseconds = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::size_t ranks = 4, width = 512, layers = 6, steps = 5;
  std::string output;
  CLI::App app("The time of an optimizer's step");
  app.add_option("--ranks", ranks, "Thread ranks")->capture_default_str();
  app.add_option("--width", width, "Width of the GPT")->capture_default_str();
  app.add_option("--layers", layers, "Layers of the GPT")->capture_default_str();
  app.add_option("--steps", steps, "Timed steps; the best counts")->capture_default_str();
  app.add_option("--output", output, "A file for the numbers, JSON");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const models::GptConfig config{.vocabulary = 256, .layers = layers, .width = width, .heads = 8, .sequence = 64};
  std::vector<Line> lines;
  std::mutex mutex;
  struct Layout {
    std::size_t tensor;
    int stage;
  };
  for (const Layout& layout : {Layout{1, 0}, Layout{1, 1}, Layout{1, 3}, Layout{2, 0}, Layout{2, 3}, Layout{ranks, 0}}) {
    if (ranks % layout.tensor != 0) continue;
    const std::string name = "dp " + std::to_string(ranks / layout.tensor) + ", tp " + std::to_string(layout.tensor) +
                             ", stage " + std::to_string(layout.stage);
    const auto measure = [&]<class Optimizer>(std::type_identity<Optimizer>, const std::string& rule,
                                              const typename Optimizer::Options& options) {
      run(RunOptions{.ranks = int(ranks), .threads_per_rank = 1}, [&](World& world) {
        Mesh<dp, tp> mesh(world, {.tp = layout.tensor});
        Model model(mesh, config, {.shard = {.stage = layout.stage}});
        Optimizer optimizer(model, options);
        model.train_step(batch_of(config, std::size_t(mesh.comm(dp{}).rank()), ranks / layout.tensor));
        double best = 1e9;
        for (std::size_t step = 0; step <= steps; ++step) {  // the first warms up
          world.communicator().barrier();
          const auto begin = Clock::now();
          optimizer.step();
          world.communicator().barrier();
          const double time = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
          if (step != 0) best = std::min(best, time);
        }
        const std::lock_guard lock(mutex);
        if (world.rank() == 0) lines.push_back({name, rule, best});
      });
    };
    measure(std::type_identity<optim::AdamW>(), "adamw", {});
    measure(std::type_identity<optim::Muon>(), "muon, home", {.work = optim::Work::home});
    measure(std::type_identity<optim::Muon>(), "muon, everywhere", {.work = optim::Work::everywhere});
  }
  nlohmann::json all = nlohmann::json::array();
  for (const Line& line : lines) {
    std::printf("%-22s %-18s %9.2f ms\n", line.layout.c_str(), line.rule.c_str(), line.milliseconds);
    all.push_back({{"layout", line.layout}, {"rule", line.rule}, {"milliseconds", line.milliseconds}});
  }
  return runtime::run_alone([&] {
    if (!output.empty()) weft::detail::write_output("optimizers: --output", output, all.dump(1) + "\n");
    return 0;
  });
}
