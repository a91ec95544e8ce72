// SPDX-License-Identifier: Apache-2.0
// Graphs whose nodes dx cuts between processes connected by TCP: losses and gradients are those of one rank.

#include "support/graphs.hpp"

#include <weft/comm/tcp.hpp>

using namespace weft_test;

TEST_CASE("message passing between processes equals one rank") {
  const int world = runtime::launch_from_environment().world;
  check_graph<MeshNet<double>, comm::Tcp>({world, {.dx = std::size_t(world)}});
  if (world == 4) check_graph<MeshNet<double>, comm::Tcp>({world, {.tp = 2, .dx = 2}});
}
