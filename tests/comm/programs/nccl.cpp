// SPDX-License-Identifier: Apache-2.0
// Compiled by nvcc and linked with the real NCCL and CUDA runtime by test_nccl_link.sh. Without a GPU it must report that; with
// one, it runs the conformance suite (WEFT_TEST_CONFORMANCE) in its memory.
#include <cstdio>

#include <weft/comm/nccl.hpp>
#include <weft/comm/threads.hpp>
#include <weft/runtime/run.hpp>

#ifdef WEFT_TEST_CONFORMANCE
#include "comm/conformance.hpp"
#endif
#include "support/on_device.hpp"

using namespace weft;

int main(int argc, char** argv) {
  return run<comm::NcclOver<comm::Threads>, comm::Nccl>(argc, argv, [](World& world) {
    const Communicator c = weft_test::on_device(world.communicator());
    std::vector<float> x(1000, float(world.rank() + 1));
    c.all_reduce(x);
    if (x[999] != float(world.size() * (world.size() + 1)) / 2) throw Error("a wrong sum");
#ifdef WEFT_TEST_CONFORMANCE
    weft_test::check_all_types(c);
    weft_test::check_in_flight(c);
    weft_test::check_tags(c);
    weft_test::check_split(c);
#endif
    if (world.rank() == 0) std::printf("%d ranks agree\n", world.size());
  });
}
