// SPDX-License-Identifier: Apache-2.0
// The time from a lost rank to the next step of an elastic run: 8 thread ranks train a GPT of about 95 MB of parameters and
// moments, rank 1 throws after a step, and six ranks go on. Prints JSON, one line for each ZeRO stage and trial: the seconds of a
// step before, and from the kill until all ranks are in the program's function again, the model and the optimizer are made, the
// state is restored, and the next step and its copies are done.
//
//   bench_elastic_recovery [trials]

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <weft/elastic/run.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

using Clock = std::chrono::steady_clock;
using Model = FullyShardedDataParallel<models::Gpt, Reproducible>;

constexpr int ranks = 8;
constexpr std::size_t micro_batches = 24;
constexpr std::uint64_t kill_at = 3;

double seconds_between(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

/// The part of a step's 24 sequences that a data rank trains.
Batch share_of_step(const models::GptConfig& config, std::uint64_t step, std::size_t rank, std::size_t data) {
  Batch batch;
  batch.sequences = batch.micro_batches = micro_batches / data;
  batch.length = config.sequence;
  batch.first_sequence = rank * batch.sequences;
  batch.step = step;
  for (std::size_t i = 0; i < batch.sequences * batch.length; ++i) {
    const std::size_t token = batch.first_sequence * batch.length + i;
    batch.tokens.push_back(std::int32_t(key_of(step, token) % config.vocabulary));
    batch.targets.push_back(std::int32_t(key_of(step, token, 1) % config.vocabulary));
  }
  return batch;
}

void measure(int stage) {
  const models::GptConfig config{.vocabulary = 64, .layers = 2, .width = 576, .heads = 8, .sequence = 8};
  ModelOptions options;
  options.shard.stage = stage;
  std::atomic<bool> killed = false;
  Clock::time_point kill;
  double before = 0;
  elastic::run<comm::Threads>(
      RunOptions{.ranks = ranks, .threads_per_rank = 1}, elastic::Options{.least = 2, .shares = micro_batches},
      [&](World& world, elastic::Member& member) {
        const Clock::time_point entered = Clock::now();
        const bool again = killed;
        Mesh<dp> mesh(world, {.dp = std::size_t(world.size())});
        Model model(mesh, config, options);
        optim::AdamW optimizer(model, {.learning_rate = 0.001});
        const Clock::time_point made = Clock::now();
        std::uint64_t step = member.restore(model, optimizer);
        const Clock::time_point restored = Clock::now();
        const std::uint64_t last = again ? step + 1 : kill_at + 1;
        while (step < last) {
          const Clock::time_point start = Clock::now();
          model.train_step(share_of_step(config, step, std::size_t(world.rank()), std::size_t(world.size())));
          optimizer.step();
          const Clock::time_point stepped = Clock::now();
          member.keep(model, optimizer, ++step);
          if (!again && world.rank() == 0) before = seconds_between(start, Clock::now());
          if (again && world.rank() == 0)
            std::printf(
                "{\"zero\": %d, \"step_before\": %.3f, \"in_function\": %.3f, \"made\": %.3f, \"restored\": %.3f, "
                "\"stepped\": %.3f, \"kept\": %.3f}\n",
                stage, before, seconds_between(kill, entered), seconds_between(kill, made), seconds_between(kill, restored),
                seconds_between(kill, stepped), seconds_between(kill, Clock::now()));
          if (!again && world.rank() == 1 && step == kill_at) {
            kill = Clock::now();
            killed = true;
            throw std::runtime_error("killed by the benchmark");
          }
        }
      });
}

}  // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(ranks));
  const int trials = argc > 1 ? std::atoi(argv[1]) : 5;
  for (int trial = 0; trial < trials; ++trial)
    for (const int stage : {0, 2, 3}) measure(stage);
}
