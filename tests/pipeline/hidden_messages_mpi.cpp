// SPDX-License-Identifier: Apache-2.0
// covers: weft/testing/delay_process_messages.hpp
// Messages between stages on processes of MPI are hidden behind computation.

#include "pipeline/hidden_messages_support.hpp"

#include <weft/comm/mpi.hpp>
#include <weft/testing/delay_process_messages.hpp>

using namespace weft_test;

TEST_CASE("between processes with a delay in every message the makespan is that of the simulation") {
  const auto network = std::make_shared<testing::SlowNetwork>();
  const auto delay = [&](const Communicator& communicator) { return testing::delay_process_messages(communicator, network); };
  const int code = run<comm::Mpi>(RunOptions{}, [&](World& world) { check_makespans(world, delay, *network); });
  CHECK(code == 0);
}
