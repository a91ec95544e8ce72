// SPDX-License-Identifier: Apache-2.0
// The fraction of the ideal speed that zig-zag ring attention reaches. Thread ranks pass real messages of keys and values (and of
// their gradients) around attention's ring. Each block is a sleep of its estimated time, so the computer's cores do not matter.
// Zig-zag blocks cost the same at every step; in contiguous chunks the last rank has twice the mean, which is shown for
// comparison. Prints JSON.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <weft/comm/ring.hpp>
#include <weft/comm/threads.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double backward = 2.5;  // time of a block's backward relative to forward: five products instead of two

// Time of a block in units of a chunk by a chunk. A rank holds two chunks. The mask halves its own block; later blocks are half
// (zig-zag), or whole or empty (contiguous).
double zigzag_cost(int, int) { return 2; }
double contiguous_cost(int step, int rank) { return step == 0 ? 2 : step <= rank ? 4 : 0; }

// One forward and backward over all layers; the slowest rank's time.
double pass_ms(const Communicator& comm, int layers, std::size_t values, double unit_ms, double (*cost)(int, int)) {
  std::vector<float> piece(values), spare(values), sum(values), arriving(values);
  const auto block = [&](double factor) {
    return [&, factor](int step, std::span<float>, auto&& progress) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(factor * unit_ms * cost(step, comm.rank())));
      progress();
    };
  };
  comm.barrier();
  const auto start = Clock::now();
  for (int layer = 0; layer < layers; ++layer) comm::ring_exchange(comm, std::span(piece), std::span(spare), block(1));
  for (int layer = 0; layer < layers; ++layer)
    comm::ring_exchange(comm, std::span(piece), std::span(spare), std::span(sum), std::span(arriving), block(backward),
                        [](int, std::span<float>) {});
  double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  comm.all_reduce(std::span(&ms, 1), Reduction::max);
  return ms;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = 4, layers = 4, repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  // 4,096 tokens per rank of one head of width 64: keys and values are a message of 2 MiB in float, and a block has 2.1 GFLOP,
  // which take 20 ms at 100 GFLOP/s.
  const std::size_t values = 1 << 19;
  const double unit_ms = 10;
  return run<comm::Threads>(RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    const auto best = [&](double (*cost)(int, int)) {
      double ms = 1e300;
      for (int i = 0; i < repetitions; ++i) ms = std::min(ms, pass_ms(world.communicator(), layers, values, unit_ms, cost));
      return ms;
    };
    const double ideal = layers * ranks * 2 * unit_ms * (1 + backward), zigzag = best(zigzag_cost),
                 contiguous = best(contiguous_cost);
    if (world.rank() != 0) return;
    std::printf(
        "{\"ranks\": %d, \"ideal_ms\": %.1f, \"zigzag_ms\": %.1f, \"zigzag_of_ideal\": %.3f, \"contiguous_ms\": %.1f, "
        "\"contiguous_of_ideal\": %.3f}\n",
        ranks, ideal, zigzag, ideal / zigzag, contiguous, ideal / contiguous);
  });
}
