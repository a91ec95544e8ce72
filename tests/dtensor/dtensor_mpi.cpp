// SPDX-License-Identifier: Apache-2.0
// The same random redistributions between MPI processes.

#include "dtensor/dtensor_support.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

TEST_CASE("random redistributions between processes") {
  std::size_t wrong = 0;
  const int code = runtime::run<comm::Mpi>(runtime::RunOptions{}, [&](World& world) {
    wrong += check_random<float>(world, dtensor::DeviceMesh(world.communicator()), 60, 11);
    if (world.size() % 2 == 0) {
      const Mesh<dp, tp> mesh(world, {.tp = 2});
      wrong += check_random<double>(world, dtensor::DeviceMesh(mesh, dp{}, tp{}), 60, 12);
      wrong += check_random<std::int64_t>(world, dtensor::DeviceMesh(mesh, tp{}, dp{}), 60, 13);
    }
  });
  CHECK(code == 0);
  CHECK(wrong == 0);
}
