// SPDX-License-Identifier: Apache-2.0
// Graphs whose nodes dx cuts between MPI processes: losses and gradients are those of one rank.

#include "support/graphs.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

TEST_CASE("message passing between processes equals one rank") {
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  check_graph<MeshNet<double>, comm::Mpi>({processes, {.dx = std::size_t(processes)}});
  if (processes == 4) {
    check_graph<MeshNet<double>, comm::Mpi>({processes, {.tp = 2, .dx = 2}});
    check_graph<MeshNet<double>, comm::Mpi>({processes, {.dp = 2, .dx = 2}, {.shard = {.stage = 3}}});
  }
}
