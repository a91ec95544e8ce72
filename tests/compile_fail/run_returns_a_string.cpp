// SPDX-License-Identifier: Apache-2.0
// A rank's function returns the exit code.
// expect: is the program's exit code
#include <string>

#include <weft/weft.hpp>

using namespace weft;

int go(int argc, char** argv) {
#ifdef WEFT_FAIL
  return run<comm::Threads>(argc, argv, [](World& world) { return std::string("rank ") + std::to_string(world.rank()); });
#else
  return run<comm::Threads>(argc, argv, [](World& world) { return world.rank() == 0 ? 0 : 1; });
#endif
}
