// SPDX-License-Identifier: Apache-2.0
// Loads a Llama from a `transformers` folder into a model of thread ranks, repeatedly. Prints JSON: seconds of each load, on the
// slowest rank.
//
//   bench_load_folder FOLDER [ROUNDS [RANKS]]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <weft/hugging_face/hugging_face.hpp>
#include <weft/weft.hpp>

int main(int argc, char** argv) {
  using namespace weft;
  if (argc < 2) return std::fprintf(stderr, "bench_load_folder FOLDER [ROUNDS [RANKS]]\n"), 2;
  const std::string folder = argv[1];
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3, ranks = argc > 3 ? std::atoi(argv[3]) : 1;
  return run<comm::Threads>(RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World& world) {
    Mesh<dp, tp> mesh(world, {.tp = std::size_t(ranks)});
    DataParallel<TensorParallel<models::Llama>> model(mesh, hugging_face::read_config<models::LlamaConfig>(folder));
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round) {
      world.communicator().barrier();
      const auto started = std::chrono::steady_clock::now();
      hugging_face::load(folder, model);
      world.communicator().barrier();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
    }
    if (world.rank() != 0) return;
    std::printf("[");
    for (std::size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.6f", i ? ", " : "", seconds[i]);
    std::printf("]\n");
  });
}
