// SPDX-License-Identifier: Apache-2.0
// The cost of reproducible runs: training steps of the same GPT in turn, on thread ranks, in processor time, which other programs
// hardly disturb. With a degree of 0 a reproducible run is compared with a plain one, on data-parallel ranks. With a larger one
// (NumericsOptions::reproducible_degree) a run with the same bits for every degree of an axis is compared with a reproducible run
// without it, on ranks of that axis: tp, sp (tp with sequence parallelism) or cp. Prints JSON.
//
//   bench_training_reproducible_cost [steps] [ranks] [micro-batches per rank] [degree] [width] [axis]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/models/gpt.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/context_parallel.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/sequence_parallel.hpp>
#include <weft/parallel/tensor_parallel.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

Batch batch_of(std::size_t sequences, std::size_t micro_batches, std::size_t rank) {
  Batch batch{.sequences = sequences, .length = 256, .micro_batches = micro_batches};
  batch.first_sequence = batch.sequences * rank;
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    batch.tokens.push_back(std::int32_t((i + batch.first_sequence * 256) * 2654435761u >> 9) & 255);
    batch.targets.push_back(std::int32_t((i + batch.first_sequence * 256 + 1) * 2654435761u >> 9) & 255);
  }
  return batch;
}

template <class Model, class Grid>
int measure(int steps, int ranks, std::size_t micro_batches, std::size_t degree, std::size_t width, const char* axis) {
  return run<comm::Threads>(RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    const models::GptConfig config{.layers = 6, .width = width, .heads = degree == 0 ? 6u : 8u, .sequence = 256};
    const bool over_cp = axis == std::string_view("cp");
    const std::size_t cut = degree == 0 ? 1 : std::size_t(ranks);
    Grid mesh(world, Degrees{.tp = over_cp ? 1 : cut, .cp = over_cp ? cut : 1});
    const Batch batch = batch_of((degree == 0 ? 2 : 4) * micro_batches, micro_batches, std::size_t(mesh.rank(dp{})));
    const auto& use = world.device().arena().use();
    std::size_t peak[2] = {};
    std::vector<double> ms[2], ratio;
    Model models[2] = {
        Model(mesh, config, {.context = ContextMethod::ulysses, .numerics = {.reproducible = degree != 0}}),
        Model(mesh, config,
              {.context = ContextMethod::ulysses, .numerics = {.reproducible = true, .reproducible_degree = degree}})};
    optim::AdamW optimizers[2] = {optim::AdamW(models[0], {.clip = 1.0}), optim::AdamW(models[1], {.clip = 1.0})};
    const auto step_of = [&](int which) {
      // The option holds for a device, which both models share.
      if (degree != 0) world.device().fix_sum_terms(which == 0 ? 0 : over_cp ? degree : degree / cut);
      if (over_cp) world.device().fix_chunk_terms(which == 0 ? 0 : degree / cut);
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
          "{\"axis\": \"%s\", \"ranks\": %d, \"micro_batches\": %zu, \"degree\": %zu, \"width\": %zu, \"without_ms\": %.1f, "
          "\"with_ms\": %.1f, "
          "\"cost\": %.4f, \"step_bytes_without\": %zu, \"step_bytes_with\": %zu, \"steps\": %d}\n",
          axis, ranks, micro_batches, degree, width, median(ms[0]), median(ms[1]), median(ratio) - 1, peak[0], peak[1], steps);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int steps = std::max(2, number(1, 10)), ranks = number(2, 2);
  const std::size_t micro_batches = std::size_t(number(3, 4)), degree = std::size_t(number(4, 0)),
                    width = std::size_t(number(5, 384));
  const std::string_view axis = argc > 6 ? argv[6] : "tp";
  using M = models::Gpt;
  if (axis == "cp")
    return measure<DataParallel<ContextParallel<TensorParallel<M>>>, Mesh<dp, cp, tp>>(steps, ranks, micro_batches, degree, width,
                                                                                       "cp");
  if (axis == "sp")
    return measure<DataParallel<SequenceParallel<M>>, Mesh<dp, tp>>(steps, ranks, micro_batches, degree, width, "sp");
  return measure<DataParallel<TensorParallel<M>>, Mesh<dp, tp>>(steps, ranks, micro_batches, degree, width, "tp");
}
