// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/nccl/pair.hpp weft/testing/delay_messages.hpp
// Messages between stages over a test double of NCCL are hidden behind computation: both directions of two neighbours, and all
// receives that the schedule posts ahead, are under way at once.

#include "pipeline/hidden_messages_support.hpp"

#include <weft/comm/nccl.hpp>
#include <weft/comm/nccl/pair.hpp>
#include <weft/comm/threads.hpp>
#include <weft/testing/delay_messages.hpp>

#include "support/fake_nccl/fake.hpp"
#include "support/on_device.hpp"

using namespace weft_test;

namespace {

void check_nccl(const std::string& name) {
  const auto network = std::make_shared<testing::SlowNetwork>();
  const int code = run<comm::Threads>(RunOptions{.ranks = 4}, [&](World& world) {
    const Communicator device = on_device(comm::nccl::over(world.communicator(), {.deadline = std::chrono::seconds(60)}));
    const auto delay = [&](const Communicator&, std::shared_ptr<testing::RankClock> clock) {
      return testing::delay_messages(device, network, std::move(clock));
    };
    check_makespans(world, delay, *network, name);
  });
  CHECK(code == 0);
  CHECK(fake_nccl::take_reports().empty());
  CHECK(fake_nccl::alive() == 0);
}

}  // namespace

TEST_CASE_TEMPLATE("over NCCL, with a delay in every message the makespan is that of the simulation", S, WEFT_TEST_SCHEDULES) {
  check_nccl(std::string(S::name));
}
