// SPDX-License-Identifier: Apache-2.0
// covers: weft/core/version.hpp
// The smallest program: its includes must be found, its calls must link, and two ranks must meet.
#include <cstdio>
#include <vector>

#include <dnnl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/core/version.hpp>
#include <weft/runtime/run.hpp>

int main(int argc, char** argv) {
  return weft::run<weft::comm::Threads>(argc, argv, [](weft::World& world) {
    std::vector<int> ranks{1};
    world.communicator().all_reduce(ranks);
    if (world.rank() == 0)
      std::printf("weft %d.%d.%d, oneDNN %d, %d ranks\n", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH,
                  dnnl_version()->major, ranks[0]);
  });
}
