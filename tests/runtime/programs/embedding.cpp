// SPDX-License-Identifier: Apache-2.0
// A program that owns MPI and Kokkos, and calls weft at the time named by its first argument; test_embedding.py checks its
// output.
#include <cstdio>
#include <exception>
#include <string>

#include <weft/comm/mpi.hpp>
#include <weft/mesh/world.hpp>
#include <weft/runtime/run.hpp>

using namespace weft;

namespace {

void embed() {
  try {
    World world(comm::mpi::over(MPI_COMM_WORLD));
    std::vector<int> sum{world.rank() + 1};
    world.communicator().all_reduce(sum);
    std::printf("the ranks sum to %d\n", sum[0]);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string when = argc > 1 ? argv[1] : "";
  if (when == "before-mpi") embed();
  MPI_Init(&argc, &argv);
  if (when == "before-kokkos") embed();
  {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    if (when == "between") {
      embed();
      embed();
    }
    // `run` uses the existing MPI and Kokkos, and leaves them unchanged.
    if (when == "run" && run<comm::Mpi>(argc, argv, [](World& world) { std::printf("rank %d of run\n", world.rank()); }) == 0)
      embed();
  }
  if (when == "after-kokkos") embed();
  MPI_Finalize();
  if (when == "after-mpi") embed();
  return 0;
}
