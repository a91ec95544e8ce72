// SPDX-License-Identifier: Apache-2.0
// A U-Net, a diffusion model and a Fourier neural operator over domain axes between MPI processes: losses, gradients and steps
// are those of one rank.

#include "support/cut_diffusion.hpp"
#include "support/cut_fno.hpp"
#include "support/unet.hpp"

#include <weft/comm/mpi.hpp>

using namespace weft_test;

TEST_CASE("a U-Net, a diffusion model and a neural operator over domain axes between processes equal one rank") {
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  check_unet_processes<comm::Mpi>(processes);
  check_diffusion_ranks<comm::Mpi>(processes);
  check_fno_ranks<comm::Mpi>(processes);
}
