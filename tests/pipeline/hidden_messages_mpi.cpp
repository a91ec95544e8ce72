// SPDX-License-Identifier: Apache-2.0
// covers: weft/testing/delay_process_messages.hpp
// Messages between stages on processes of MPI are hidden behind computation.

#include "pipeline/hidden_messages_support.hpp"

#include <weft/comm/mpi.hpp>
#include <weft/testing/delay_process_messages.hpp>

using namespace weft_test;

namespace {

void check_processes(const std::string& name) {
  const auto network = std::make_shared<testing::SlowNetwork>();
  const auto delay = [&](const Communicator& communicator, std::shared_ptr<testing::RankClock> clock) {
    return testing::delay_process_messages(communicator, network, std::move(clock));
  };
  const int code = run<comm::Mpi>(RunOptions{}, [&](World& world) { check_makespans(world, delay, *network, name); });
  CHECK(code == 0);
}

}  // namespace

TEST_CASE_TEMPLATE("between processes with a delay in every message the makespan is that of the simulation", S,
                   WEFT_TEST_SCHEDULES) {
  check_processes(std::string(S::name));
}
