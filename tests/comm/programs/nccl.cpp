// SPDX-License-Identifier: Apache-2.0
// Compiled by nvcc and linked with the real NCCL and CUDA runtime by test_nccl_link.sh. Where there is no GPU it must say so; where there
// is one, it adds across as many thread ranks as WEFT_RANKS says.
#include <cstdio>

#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/runtime/run.hpp>

#include "support/on_device.hpp"

using namespace weft;

int main(int argc, char** argv) {
  return run<comm::NcclOver<comm::Threads>, comm::Nccl>(argc, argv, [](World& world) {
    const Communicator c = weft_test::on_device(world.communicator());
    std::vector<float> x(1000, float(world.rank() + 1));
    c.all_reduce(x);
    if (x[999] != float(world.size() * (world.size() + 1)) / 2) throw Error("a wrong sum");
    if (world.rank() == 0) std::printf("%d GPUs agree\n", world.size());
  });
}
