// SPDX-License-Identifier: Apache-2.0
// The main of every test program that is one process: Kokkos with room for 8 thread ranks, then doctest.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <Kokkos_Core.hpp>

#include "support/watchdog.hpp"

int main(int argc, char** argv) {
  Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(8).set_disable_warnings(true));
  doctest::Context context(argc, argv);
  context.setOption("no-intro", true);
  context.setOption("no-colors", true);
  weft_test::Watchdog::instance().start(0);
  const int result = context.run();
  weft_test::Watchdog::instance().stop();
  return result;
}
