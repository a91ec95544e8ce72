// SPDX-License-Identifier: Apache-2.0
// The cost of the same bits for every tp (NumericsOptions::reproducible_degree) compared with a reproducible run without it:
// training steps of the same GPT in turn, on some tensor-parallel thread ranks, in processor time, which other programs hardly
// disturb. Prints JSON.
//
//   bench_training_reproducible_degree_cost [steps] [tp] [degree] [width]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(2, std::atoi(argv[1])) : 9, ranks = argc > 2 ? std::atoi(argv[2]) : 1;
  const std::size_t degree = argc > 3 ? std::size_t(std::atoi(argv[3])) : 4,
                    width = argc > 4 ? std::size_t(std::atoi(argv[4])) : 384;
  return run<comm::Threads>(RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    const models::GptConfig config{.layers = 6, .width = width, .heads = 8, .sequence = 256};
    Batch batch{.sequences = 4, .length = config.sequence};
    for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
      batch.tokens.push_back(std::int32_t(i * 2654435761u >> 9) & 255);
      batch.targets.push_back(std::int32_t((i + 1) * 2654435761u >> 9) & 255);
    }
    Mesh<tp> mesh(world, Degrees{.tp = std::size_t(ranks)});
    TensorParallel<models::Gpt> models[2] = {
        TensorParallel<models::Gpt>(mesh, config, {.numerics = {.reproducible = true}}),
        TensorParallel<models::Gpt>(mesh, config, {.numerics = {.reproducible = true, .reproducible_degree = degree}})};
    optim::AdamW optimizers[2] = {optim::AdamW(models[0], {.clip = 1.0}), optim::AdamW(models[1], {.clip = 1.0})};
    std::vector<double> ms[2], ratio;
    const auto step_of = [&](int which) {
      world.device().fix_sum_terms(which == 0 ? 0 : degree / std::size_t(ranks));  // the option holds for a device
      world.communicator().barrier();
      const std::clock_t started = std::clock();
      models[which].train_step(batch);
      optimizers[which].step();
      world.communicator().barrier();
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
          "{\"tp\": %d, \"degree\": %zu, \"width\": %zu, \"plain_ms\": %.1f, \"degree_ms\": %.1f, \"cost\": %.4f, \"steps\": "
          "%d}\n",
          ranks, degree, width, median(ms[0]), median(ms[1]), median(ratio) - 1, steps);
  });
}
