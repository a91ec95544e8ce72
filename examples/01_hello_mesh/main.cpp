// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process, or as the processes that mpirun started: each says who it is and they sum their numbers.
#include <cstdio>
#include <vector>

#include <weft/runtime/run.hpp>

int main(int argc, char** argv) {
  return weft::run<weft::comm::Threads>(argc, argv, [](weft::World& world) {
    std::vector<int> sum{world.rank()};
    world.communicator().all_reduce(sum);
    std::printf("rank %d of %d (%s): the ranks sum to %d\n", world.rank(), world.size(), std::string(world.backend()).c_str(),
                sum[0]);
  });
}
