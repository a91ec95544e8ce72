// SPDX-License-Identifier: Apache-2.0
// The cost of a reproducible run compared with a plain one: training steps of the same GPT in turn, on some data-parallel thread
// ranks with several micro-batches each, in processor time, which other programs hardly disturb. Prints JSON.
//
//   bench_training_reproducible_cost [steps] [ranks] [micro-batches per rank]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(2, std::atoi(argv[1])) : 10, ranks = argc > 2 ? std::atoi(argv[2]) : 2;
  const std::size_t micro_batches = argc > 3 ? std::size_t(std::atoi(argv[3])) : 4;
  return run<comm::Threads>(RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    const models::GptConfig config{.layers = 6, .width = 384, .heads = 6, .sequence = 256};
    Batch batch;
    batch.sequences = 2 * micro_batches;
    batch.length = 256;
    batch.micro_batches = micro_batches;
    batch.first_sequence = batch.sequences * std::size_t(world.rank());
    for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
      batch.tokens.push_back(std::int32_t((i + batch.first_sequence * 256) * 2654435761u >> 9) & 255);
      batch.targets.push_back(std::int32_t((i + batch.first_sequence * 256 + 1) * 2654435761u >> 9) & 255);
    }
    Mesh<dp> mesh(world);
    const auto& use = world.device().arena().use();
    std::size_t peak[2] = {};
    std::vector<double> ms[2], ratio;
    DataParallel<models::Gpt> models[2] = {DataParallel<models::Gpt>(mesh, config),
                                           DataParallel<models::Gpt>(mesh, config, {.numerics = {.reproducible = true}})};
    optim::AdamW optimizers[2] = {optim::AdamW(models[0], {.clip = 1.0}), optim::AdamW(models[1], {.clip = 1.0})};
    const auto step_of = [&](int which) {
      world.device().arena().reset_peak();
      const std::size_t kept = use.current;
      world.communicator().barrier();
      const std::clock_t started = std::clock();
      models[which].train_step(batch);
      optimizers[which].step();
      world.communicator().barrier();
      peak[which] = std::max(peak[which], use.peak - kept);
      return 1e3 * double(std::clock() - started) / CLOCKS_PER_SEC;
    };
    for (int step = -1; step < steps; ++step) {  // the first one warms up
      double time[2];
      const int first = step % 2 != 0;  // the order alternates, so that a drifting clock favours neither
      time[first] = step_of(first);
      time[1 - first] = step_of(1 - first);
      if (step < 0) continue;
      for (const int which : {0, 1}) ms[which].push_back(time[which]);
      ratio.push_back(time[1] / time[0]);
    }
    if (world.rank() == 0)
      std::printf(
          "{\"ranks\": %d, \"micro_batches\": %zu, \"plain_ms\": %.1f, \"reproducible_ms\": %.1f, \"cost\": %.4f, "
          "\"step_bytes_plain\": %zu, \"step_bytes_reproducible\": %zu, \"steps\": %d}\n",
          ranks, micro_batches, median(ms[0]), median(ms[1]), median(ratio) - 1, peak[0], peak[1], steps);
  });
}
