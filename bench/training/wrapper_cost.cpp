// SPDX-License-Identifier: Apache-2.0
// The cost of three wrappers over axes of degree 1 compared with the bare model: training steps of the same GPT in turn, on one
// rank of one thread, in processor time, which other programs hardly disturb. Prints JSON.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/pipeline_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

using Parallel = DataParallel<TensorParallel<PipelineParallel<models::Gpt>>>;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <class Model>
double step_ms(Model& model, optim::AdamW& optimizer, const Batch& batch) {
  const std::clock_t started = std::clock();
  model.train_step(batch);
  optimizer.step();
  return 1e3 * double(std::clock() - started) / CLOCKS_PER_SEC;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(2, std::atoi(argv[1])) : 20;
  return run<comm::Threads>(RunOptions{.ranks = 1, .threads_per_rank = 1}, [&](World& world) {
    const models::GptConfig config{.layers = 6, .width = 384, .heads = 6, .sequence = 256};
    Batch batch;
    batch.sequences = 8;
    batch.length = 256;
    for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
      batch.tokens.push_back(std::int32_t(i * 2654435761u >> 9) & 255);
      batch.targets.push_back(std::int32_t((i + 1) * 2654435761u >> 9) & 255);
    }
    SingleDevice<models::Gpt> bare(world.device(), config);
    Mesh<dp, tp, pp> mesh(world);
    Parallel wrapped(mesh, config);
    optim::AdamW bare_optimizer(bare, {.clip = 1.0}), wrapped_optimizer(wrapped, {.clip = 1.0});
    std::vector<double> bare_ms, wrapped_ms, ratio;
    for (int step = -2; step < steps; ++step) {  // the first two warm up
      const bool swapped = step % 2 != 0;        // the order alternates, so that a drifting clock favours neither
      double a = 0, b = 0;
      if (swapped) b = step_ms(wrapped, wrapped_optimizer, batch);
      a = step_ms(bare, bare_optimizer, batch);
      if (!swapped) b = step_ms(wrapped, wrapped_optimizer, batch);
      if (step < 0) continue;
      bare_ms.push_back(a);
      wrapped_ms.push_back(b);
      ratio.push_back(b / a);
    }
    std::printf("{\"bare_ms\": %.2f, \"wrapped_ms\": %.2f, \"cost\": %.4f, \"steps\": %d}\n", median(bare_ms), median(wrapped_ms),
                median(ratio) - 1, steps);
  });
}
