// SPDX-License-Identifier: Apache-2.0
// Asynchronous saves under ThreadSanitizer. Threads of two ranks write while the ranks train, on a disk that is randomly slow and
// sometimes full; saves wait for the one before, and objects end during a save. The model is in double, which uses weft's
// products: the sanitizer cannot see the synchronisation of libraries.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <weft/checkpoint/checkpoint.hpp>
#include <weft/weft.hpp>

using namespace weft;

namespace {

struct Fickle : checkpoint::FileSystem {
  std::atomic<unsigned> calls{0};
  bool fails() {
    const std::uint64_t draw = key_of(11, calls.fetch_add(1));
    std::this_thread::sleep_for(std::chrono::microseconds(draw % 400));
    return draw % 97 == 0;
  }
  ::ssize_t write(int file, const void* bytes, std::size_t count) override {
    return fails() ? (errno = ENOSPC, -1) : FileSystem::write(file, bytes, count);
  }
  int sync(int) override { return fails() ? (errno = EIO, -1) : 0; }
};

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 100;  // 1,000 by hand
  const std::string folder = (std::filesystem::temp_directory_path() / ("weft-sanitized-" + std::to_string(::getpid()))).string();
  Fickle disk;
  std::atomic<int> failed{0}, completed{0};
  const int code = run<comm::Threads>(RunOptions{.ranks = 2, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp> mesh(world);
    DataParallel<models::BasicGpt<double>> model(mesh, {.vocabulary = 16, .layers = 1, .width = 8, .heads = 2, .sequence = 4});
    optim::AdamW optimizer(model);
    Batch batch{.sequences = 1, .length = 4, .first_sequence = std::size_t(world.rank())};
    batch.tokens = {1, 2, 3, 4};
    batch.targets = {2, 3, 4, 5};
    for (int i = 0; i < iterations;) {
      checkpoint::Saver saver(folder, {.keep = 2, .system = &disk});
      for (int k = 0; k < 10; ++k, ++i) try {
          model.train_step(batch);
          optimizer.step();
          saver.poll();
          if (k % 3 != 2) saver.save(model, optimizer, std::uint64_t(i));
          if (saver.completed() && world.rank() == 0) ++completed;
        } catch (const checkpoint::Error&) {
          failed += world.rank() == 0;
        }
    }
  });
  std::filesystem::remove_all(folder);
  std::printf("%d iterations, %d failed saves\n", iterations, failed.load());
  return code != 0 ? code : failed > 0 && completed > 0 ? 0 : 1;
}
