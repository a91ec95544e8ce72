// SPDX-License-Identifier: Apache-2.0
// A training that tests kill and join: program STEPS LEAST WIDTH STAGE PAUSE_MS. Rank 0 prints each finished step with the bits
// of its loss and the time, and at the end a digest of the whole state.
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>

#include <weft/checkpoint/save.hpp>
#include <weft/comm/tcp.hpp>
#include <weft/comm/threads.hpp>
#include <weft/elastic/run.hpp>
#include <weft/weft.hpp>

#include "support/elastic_training.hpp"

using namespace weft_test;

namespace {

constexpr std::size_t micro_batches = 24;

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const std::uint64_t steps = std::strtoull(argv[1], nullptr, 10);
  const int least = std::atoi(argv[2]), stage = std::atoi(argv[4]), pause_ms = std::atoi(argv[5]);
  const std::size_t width = std::size_t(std::atoi(argv[3]));
  return elastic::run<comm::Threads, comm::Tcp>(
      RunOptions{.deadline_s = 60, .threads_per_rank = 1, .argc = argc, .argv = argv},
      elastic::Options{.least = least, .shares = micro_batches, .replace_after_s = 20},
      [&](World& world, elastic::Member& member) {
        Mesh<dp> mesh(world);
        ModelOptions options;
        options.shard.stage = stage;
        FullyShardedDataParallel<models::BasicGpt<float>, Reproducible> model(
            mesh, {.vocabulary = 19, .layers = 2, .width = width, .heads = 2, .kv_heads = 1, .sequence = 4, .dropout = 0.1},
            options);
        optim::AdamW optimizer(model, {.learning_rate = 0.01, .clip = 0.5});
        std::uint64_t step = member.restore(model, optimizer);
        while (step < steps) {
          const double loss =
              model.train_step(share_of_step(micro_batches, step, std::size_t(world.rank()), std::size_t(world.size())));
          optimizer.step();
          const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
          if (world.rank() == 0) {
            std::printf("step %" PRIu64 " loss %a ranks %d at %.6f copies %zu\n", step, loss, world.size(), now,
                        member.copy_bytes());
            std::fflush(stdout);
          }
          member.keep(model, optimizer, ++step);
          if (pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        }
        // Every rank's digest of its elements, each counted once: sums do not depend on the layout.
        const auto state = checkpoint::detail::whole_state(model, optimizer);
        std::uint64_t sums[] = {0, 0};
        for (const auto& item : state.items) {
          const auto bytes = item.read();
          const std::size_t size = size_of(item.type);
          for (const auto& run : item.runs)
            for (std::size_t i = 0; run.owned && item.counted && i < run.length; ++i) {
              std::uint64_t value = 0;
              std::memcpy(&value, bytes.data + (run.local + i) * size, size);
              sums[0] += key_of(value, run.global + i, std::hash<std::string>()(item.name));
              ++sums[1];
            }
        }
        world.communicator().all_reduce(std::span(sums));
        if (world.rank() == 0)
          std::printf("digest %016" PRIx64 " of %" PRIu64 " elements, %" PRIu64 " steps\n", sums[0], sums[1],
                      std::uint64_t(optimizer.steps()));
      });
}
