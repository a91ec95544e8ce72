// SPDX-License-Identifier: Apache-2.0
// The reference speed of a run: measured by the ranks with dedicated cores, and returned on all of them.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include <weft/comm/run_options.hpp>
#include <weft/runtime/run.hpp>
#include <weft/trace/peak.hpp>

using namespace weft;

namespace {

struct Measured {
  std::atomic<int> ranks{0};
  std::set<double> peaks;
};

/// The ranks that computed products, identified by their arenas, and the peaks returned on all ranks.
void measure(Measured& measured, int ranks, int threads) {
  std::mutex mutex;
  CHECK(run(RunOptions{.ranks = ranks, .threads_per_rank = threads}, [&](World& world) {
          const double peak = trace::matmul_peak<float>(world.device(), world.communicator());
          if (world.device().arena().use().peak > 0) ++measured.ranks;
          std::lock_guard lock(mutex);
          measured.peaks.insert(peak);
        }) == 0);
}

}  // namespace

TEST_CASE("256 ranks start with as many measurements as there are cores, and all have the result") {
  const int cores = runtime::detail::cores();
  Measured measured;
  measure(measured, 256, 1);
  CHECK(measured.ranks == std::min(cores, 256));
  REQUIRE(measured.peaks.size() == 1);
  CHECK(*measured.peaks.begin() > 0);
}
TEST_CASE("a rank whose threads fill the machine measures alone, and so does the first of ranks with more threads than cores") {
  const int cores = runtime::detail::cores();
  Measured one, crowded;
  measure(one, 1, cores);
  CHECK(one.ranks == 1);
  measure(crowded, 3, 2 * cores);
  CHECK(crowded.ranks == 1);
  CHECK(*crowded.peaks.begin() > 0);
}
