// SPDX-License-Identifier: Apache-2.0
// covers: weft/checkpoint/checkpoint.hpp
// Repeated failures in one process: a rank throws at a random call (while the model is made, in a step, in a load or a save), and
// the world is created again and continues from the last checkpoint. Each training ends with the bits of an undisturbed one, and
// memory, file descriptors and threads do not grow. WEFT_TEST_RUNS: number of failures; the long form has 2,000.
#include <doctest/doctest.h>

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/runtime/guard.hpp>
#include <weft/testing/inject_faults.hpp>
#include <weft/weft.hpp>

#include "support/checkpoint_tensors.hpp"
#include "support/figure.hpp"
#include "support/temporary_folder.hpp"

using namespace weft;

namespace {

constexpr int ranks = 4, steps = 24, every = 4;
using Model = FullyShardedDataParallel<PipelineParallel<models::Gpt>>;

std::size_t entries_of(const std::string& folder) {
  return std::size_t(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

/// Brings nothing to the disk: no machine crashes here, and the disk would be most of the time.
struct Unsynced final : checkpoint::FileSystem {
  int sync(int) override { return 0; }
};

/// The resources of a process.
struct Holdings {
  double resident_mib = 0, in_use_mib = 0;
  std::size_t descriptors = 0, threads = 0;
  static Holdings now() {
    Holdings all;
    long pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    all.resident_mib = double(resident) * double(::sysconf(_SC_PAGESIZE)) / (1 << 20);
    const auto memory = ::mallinfo2();
    all.in_use_mib = double(memory.uordblks + memory.hblkhd) / (1 << 20);
    all.descriptors = entries_of("/proc/self/fd");
    all.threads = entries_of("/proc/self/task");
    return all;
  }
};

Batch batch_of(int step, std::size_t rank) {
  Batch batch{.sequences = 4, .length = 8};
  batch.micro_batches = 2;
  batch.first_sequence = 4 * rank;
  batch.step = std::uint64_t(step);
  for (std::size_t i = 0; i < 32; ++i) {
    batch.tokens.push_back(std::int32_t(key_of(step, 32 * rank + i) % 32));
    batch.targets.push_back(std::int32_t(key_of(step, 32 * rank + i, 1) % 32));
  }
  return batch;
}

/// A training from the last checkpoint to its end. `losses`: of the completed steps, on rank 0.
void train(const std::string& folder, const testing::Faults& faults, std::map<int, double>& losses) {
  static Unsynced unsynced;
  comm::run_threads(
      ranks,
      [&](const Communicator& real) {
        const runtime::detail::RankInstance<DefaultDevice::execution_space> instance(real.rank(), ranks, 1);
        DefaultDevice device(instance.exec);
        World world(testing::inject_faults(real, faults), device);
        Mesh<dp, pp> mesh(world, {.pp = 2});
        Model model(mesh, {.vocabulary = 32, .layers = 2, .width = 8, .heads = 2, .sequence = 8, .dropout = 0.1},
                    {.shard = {.stage = 2}});
        optim::AdamW optimizer(model, {.learning_rate = 0.01, .clip = 1.0});
        int step = checkpoint::exists(folder) ? int(checkpoint::load(folder, model, optimizer)) : 0;
        while (step < steps) {
          const double loss = model.train_step(batch_of(step, std::size_t(mesh.rank(dp{}))));
          optimizer.step();
          if (world.rank() == 0 && !losses.emplace(step, loss).second && losses[step] != loss) throw Error("another loss");
          if (++step % every == 0)
            checkpoint::save(folder, model, optimizer, std::uint64_t(step), {.keep = 2, .system = &unsynced});
        }
      },
      std::chrono::seconds(60));
}

}  // namespace

TEST_CASE("thousands of failures in one process, each recovered from the last checkpoint") {
  weft_test::TemporaryFolder scratch;
  const std::string undisturbed = (scratch.path / "undisturbed").string();
  std::map<int, double> expected;
  train(undisturbed, {}, expected);
  REQUIRE(expected.size() == std::size_t(steps));
  const auto tensors = weft_test::tensors_of(undisturbed);
  REQUIRE(tensors.size() > 20);

  const long wanted = weft_test::rounds(30);
  long failures = 0;
  unsigned long long trainings = 0, apart = 0;
  std::vector<Holdings> held;
  held.reserve(std::size_t(wanted));  // so that the list is no memory that grows
  for (std::uint64_t seed = 1; failures < wanted; ++trainings) {
    const std::string folder = (scratch.path / "disturbed").string();
    std::map<int, double> losses;
    for (bool done = false; !done; ++seed) {
      // Some reach a checkpoint and some do not: a step has about 40 calls.
      const testing::Faults faults{.seed = seed,
                                   .fail_at = 1 + key_of(seed) % 700,
                                   .fail_on = int(seed % ranks),
                                   .delay = 0.002,
                                   .late = 0.2,
                                   .reorder = true};
      try {
        train(folder, faults, losses);
        done = true;
      } catch (const testing::InjectedError&) {
        ++failures;
      }
    }
    const bool same = losses == expected && weft_test::tensors_of(folder) == tensors;
    CHECK(same);
    apart += !same;
    CHECK(entries_of(folder) <= 3);  // two checkpoints and `latest`: leftovers of failed saves are removed
    std::filesystem::remove_all(folder);
    held.push_back(Holdings::now());
  }
  weft_test::figure(18, (unsigned long long)failures, "failures, each recovered from the last checkpoint", apart,
                    "trainings with other bits");

  // Resources do not grow after the first quarter.
  const auto most = [&](std::size_t from, std::size_t to) {
    Holdings all;
    all.threads = held[from].threads;  // the fewest: one that has been joined is in the list until the kernel has done with it
    for (std::size_t i = from; i < to; ++i) {
      all.resident_mib = std::max(all.resident_mib, held[i].resident_mib);
      all.in_use_mib = std::max(all.in_use_mib, held[i].in_use_mib);
      all.descriptors = std::max(all.descriptors, held[i].descriptors);
      all.threads = std::min(all.threads, held[i].threads);
    }
    return all;
  };
  const std::size_t quarter = held.size() / 4;
  const Holdings first = most(quarter, 2 * quarter), last = most(3 * quarter, held.size());
  std::printf(
      "figure 18: %.1f MiB resident (%.2f in use), %zu descriptors, %zu threads at first, %.1f (%.2f), %zu, %zu at last, %llu "
      "trainings\n",
      first.resident_mib, first.in_use_mib, first.descriptors, first.threads, last.resident_mib, last.in_use_mib,
      last.descriptors, last.threads, trainings);
  CHECK(last.descriptors == first.descriptors);
  CHECK(last.threads == first.threads);
  CHECK(last.in_use_mib <= 1.01 * first.in_use_mib);
  if (wanted >= 500) CHECK(last.resident_mib <= 1.01 * first.resident_mib);  // before, stacks and arenas still fill
}
