// SPDX-License-Identifier: Apache-2.0
// A rank's function takes the world.
// expect: f takes a World&
#include <weft/weft.hpp>

using namespace weft;

int go(int argc, char** argv) {
#ifdef WEFT_FAIL
  return run<comm::Threads>(argc, argv, [](int rank) { return rank == 0 ? 0 : 1; });
#else
  return run<comm::Threads>(argc, argv, [](World& world) { return world.rank() == 0 ? 0 : 1; });
#endif
}
