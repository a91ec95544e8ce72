// SPDX-License-Identifier: Apache-2.0
// A U-Net over domain axes between processes connected by TCP: losses, gradients and steps are those of one rank.

#include "support/unet.hpp"

#include <weft/comm/tcp.hpp>

using namespace weft_test;

TEST_CASE("a U-Net over domain axes between processes equals one rank") {
  check_unet_processes<comm::Tcp>(runtime::launch_from_environment().world);
}
