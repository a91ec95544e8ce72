// SPDX-License-Identifier: Apache-2.0
// The main of test programs that run under torchrun's environment. tests/support/torchrun starts them and fails if one rank
// fails. Rank 0 prints everything; other ranks print only failures.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>
#include <sstream>

#include <Kokkos_Core.hpp>

#include <weft/comm/launcher.hpp>

#include "support/watchdog.hpp"

int main(int argc, char** argv) {
  const auto launch = weft::runtime::launch_from_environment();
  Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(2).set_disable_warnings(true));
  doctest::Context context(argc, argv);
  context.setOption("no-intro", true);
  context.setOption("no-colors", true);
  std::ostringstream quiet;
  if (launch.rank != 0) context.setCout(&quiet);
  weft_test::Watchdog::instance().start(launch.rank);
  const int result = context.run();
  weft_test::Watchdog::instance().stop();
  if (launch.rank != 0 && result != 0)
    std::cerr << "on rank " << launch.rank << " of " << launch.world << ":\n" << quiet.str() << std::flush;
  return result;
}
