// SPDX-License-Identifier: Apache-2.0
// Every operation on DTensors between MPI processes: values and gradients in random layouts are those of one rank.

#include "dtensor/operations_support.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

TEST_CASE("values and gradients of every operation between processes are those of one rank") {
  std::size_t checked = 0;
  const int code = runtime::run<comm::Mpi>(runtime::RunOptions{}, [&](World& world) {
    checked += check_operations(world, dtensor::DeviceMesh(world.communicator()), 4, 5);
    if (world.size() == 4) {
      const Mesh<dp, tp> mesh(world, {.tp = 2});
      checked += check_operations(world, dtensor::DeviceMesh(mesh, dp{}, tp{}), 6, 6);
      checked += check_operations(world, dtensor::DeviceMesh(mesh, dp{}, tp{}).sub({"dp"}), 2, 7);
    }
    if (world.rank() == 0) CHECK(checked >= 200);
  });
  CHECK(code == 0);
}
