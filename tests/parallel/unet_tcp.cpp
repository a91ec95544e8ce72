// SPDX-License-Identifier: Apache-2.0
// A U-Net, a diffusion model and a Fourier neural operator over domain axes between processes connected by TCP: losses, gradients
// and steps are those of one rank.

#include "support/cut_diffusion.hpp"
#include "support/cut_fno.hpp"
#include "support/unet.hpp"

#include <weft/comm/tcp.hpp>

using namespace weft_test;

TEST_CASE("a U-Net, a diffusion model and a neural operator over domain axes between processes equal one rank") {
  const int processes = runtime::launch_from_environment().world;
  check_unet_processes<comm::Tcp>(processes);
  check_diffusion_ranks<comm::Tcp>(processes);
  check_fno_ranks<comm::Tcp>(processes);
}
