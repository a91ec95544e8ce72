// SPDX-License-Identifier: Apache-2.0
// A U-Net over domain axes between MPI processes: losses, gradients and steps are those of one rank.

#include "support/unet.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

TEST_CASE("a U-Net over domain axes between processes equals one rank") {
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  check_unet_processes<comm::Mpi>(processes);
}
