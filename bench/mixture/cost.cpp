// SPDX-License-Identifier: Apache-2.0
// A mixture of experts compared with a dense model of the same floating-point operations per token: training steps in turn, in
// processor time, which other programs hardly disturb; one rank, then two with experts over ep. Prints JSON.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include <weft/comm/threads.hpp>
#include <weft/models/mixtral.hpp>
#include <weft/optim/adamw.hpp>
#include <weft/parallel/data_parallel.hpp>
#include <weft/parallel/expert_parallel.hpp>
#include <weft/parallel/single_device.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Time of this thread, since a rank has one.
double now_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * double(time.tv_sec) + 1e-6 * double(time.tv_nsec);
}

template <class Model>
double step_ms(Model& model, const Batch& batch) {
  const double started = now_ms();
  model.train_step(batch);
  return now_ms() - started;
}

Batch batch_of(std::size_t sequences, std::size_t rank, std::uint64_t seed) {
  Batch batch;
  batch.sequences = sequences;
  batch.first_sequence = sequences * rank;
  batch.length = 256;
  for (std::size_t i = 0; i < sequences * batch.length; ++i) {
    batch.tokens.push_back(std::int32_t(key_of(seed, i) % 256));
    batch.targets.push_back(std::int32_t(key_of(seed, i + 1) % 256));
  }
  return batch;
}

template <class S, class Dense, class Mixture>
void race(const char* what, Dense& dense, Mixture& mixture, int steps, std::size_t rank) {
  std::vector<double> dense_ms, mixture_ms, share;
  for (int step = -2; step < steps; ++step) {  // the first two warm up
    const Batch batch = batch_of(8, rank, (rank + 1) * 1000 + std::uint64_t(step + 2));
    double a = 0, b = 0;
    if (step % 2) b = step_ms(mixture, batch);
    a = step_ms(dense, batch);
    if (step % 2 == 0) b = step_ms(mixture, batch);
    if (step < 0) continue;
    dense_ms.push_back(a);
    mixture_ms.push_back(b);
    share.push_back(a / b);
  }
  if (rank == 0)
    std::printf(
        "{\"what\": \"%s\", \"type\": \"%s\", \"dense_ms\": %.1f, \"mixture_ms\": %.1f, \"share\": %.3f, \"steps\": %d}\n", what,
        sizeof(S) == 2 ? "bf16" : "fp32", median(dense_ms), median(mixture_ms), median(share), steps);
}

template <class S>
int compare(int steps) {
  const models::LlamaConfig dense{.layers = 6, .width = 384, .heads = 6, .intermediate = 1024, .sequence = 256};
  const models::MixtralConfig mixture{
      .layers = 6, .width = 384, .heads = 6, .intermediate = 512, .sequence = 256, .experts = 8, .top_k = 2};
  const int one = run<comm::Threads>(RunOptions{.ranks = 1, .threads_per_rank = 1}, [&](World& world) {
    SingleDevice<models::BasicLlama<S>> a(world.device(), dense);
    SingleDevice<models::BasicMixtral<S>> b(world.device(), mixture);
    race<S>("one rank", a, b, steps, 0);
  });
  const int two = run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> data(world);
    Mesh<dp, ep> folded(world, {.ep = 2});
    DataParallel<models::BasicLlama<S>> a(data, dense);
    DataParallel<ExpertParallel<models::BasicMixtral<S>>> b(folded, mixture);
    race<S>("two ranks, ep 2", a, b, steps, std::size_t(world.rank()));
  });
  return one | two;
}

}  // namespace

// [steps] [fp32 | bf16]
int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(2, std::atoi(argv[1])) : 10;
  const std::string_view type = argc > 2 ? argv[2] : "both";
  const Kokkos::ScopeGuard kokkos(argc, argv);
  return (type == "bf16" ? 0 : compare<float>(steps)) | (type == "fp32" ? 0 : compare<bfloat16>(steps));
}
