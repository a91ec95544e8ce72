// SPDX-License-Identifier: Apache-2.0
// A GPT's step on one rank of two threads and on two data-parallel ranks of one thread, with the same global batch: a rank's
// threads should be as fast as ranks. Prints JSON: milliseconds per step, medians over windows of steps, the best window, and the
// fraction of the computer's peak at the median.
//
//   bench_small_ranks [tiny|small|nanogpt [windows [steps]]]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/runtime/run.hpp>
#include <weft/trace/peak.hpp>

using namespace weft;

namespace {

struct Case {
  std::string_view name;
  models::GptConfig config;
  std::size_t sequences;
  int windows, steps;
};

constexpr std::size_t processors = 2;

Batch make_batch(const Case& of, std::size_t rank, std::size_t ranks) {
  Batch batch{.sequences = of.sequences / ranks, .length = of.config.sequence, .first_sequence = rank * (of.sequences / ranks)};
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    const std::size_t token = batch.first_sequence * batch.length + i;
    batch.tokens.push_back(std::int32_t((token * 2654435761u >> 9) % of.config.vocabulary));
    batch.targets.push_back(std::int32_t(((token + 1) * 2654435761u >> 9) % of.config.vocabulary));
  }
  return batch;
}

// Floating-point operations per step: 6 per parameter of a matrix and token; attention counts half for its mask.
double operations_of(const Case& of) {
  const double width = double(of.config.width), layers = double(of.config.layers), sequence = double(of.config.sequence);
  const double matrices = layers * 12 * width * width + width * double(of.config.vocabulary);
  return double(of.sequences) * sequence * (6 * matrices + 6 * layers * sequence * width);
}

void measure(const Case& of, int ranks, int threads) {
  run<comm::Threads>(RunOptions{.ranks = ranks, .threads_per_rank = threads}, [&](World& world) {
    using Clock = std::chrono::steady_clock;
    const double peak = trace::matmul_peak<float>(world.device(), world.communicator());
    Mesh<dp> mesh(world, {.dp = std::size_t(ranks)});
    DataParallel<models::Gpt> model(mesh, of.config);
    optim::AdamW optimizer(model, {.clip = 1.0});
    Batch batch = make_batch(of, std::size_t(world.rank()), std::size_t(ranks));
    std::vector<double> window;
    double loss = 0;
    for (int w = -1; w < of.windows; ++w) {  // the first one warms up
      world.communicator().barrier();
      const auto started = Clock::now();
      for (int step = 0; step < of.steps; ++step, ++batch.step) {
        loss = model.train_step(batch);
        optimizer.step();
      }
      if (w >= 0) window.push_back(std::chrono::duration<double, std::milli>(Clock::now() - started).count() / of.steps);
    }
    std::sort(window.begin(), window.end());
    const double step_ms = window[window.size() / 2];
    if (world.rank() == 0)
      std::printf(
          "{\"case\": \"%s\", \"ranks\": %d, \"threads\": %d, \"step_ms\": %.4f, \"best_ms\": %.4f, \"share_of_peak\": %.3f, "
          "\"peak_gflops\": %.0f, \"loss\": %.17g}\n",
          of.name.data(), ranks, threads, step_ms, window.front(), operations_of(of) / (step_ms * 1e-3) / peak, peak * 1e-9,
          loss);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const Case cases[] = {
      {"tiny", {.vocabulary = 16, .layers = 1, .width = 16, .heads = 2, .sequence = 8}, 2, 201, 20},
      {"small", {.vocabulary = 64, .layers = 2, .width = 64, .heads = 2, .sequence = 32}, 8, 101, 5},
      {"nanogpt", {.vocabulary = 65, .layers = 4, .width = 128, .heads = 4, .sequence = 64}, 12, 31, 3},
  };
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(int(processors)).set_disable_warnings(true));
  for (Case of : cases) {
    if (argc > 1 && of.name != argv[1]) continue;
    if (argc > 2) of.windows = std::max(1, std::atoi(argv[2]));
    if (argc > 3) of.steps = std::max(1, std::atoi(argv[3]));
    measure(of, int(processors), 1);
    measure(of, 1, int(processors));
  }
}
