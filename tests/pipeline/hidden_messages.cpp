// SPDX-License-Identifier: Apache-2.0
// covers: weft/testing/delay_messages.hpp weft/pipeline/executor.hpp weft/pipeline/schedule/simulate.hpp
// Messages between stages on threads are hidden behind computation.

#include "pipeline/hidden_messages_support.hpp"

#include <weft/comm/threads.hpp>
#include <weft/pipeline/executor.hpp>
#include <weft/pipeline/schedule/simulate.hpp>
#include <weft/testing/delay_messages.hpp>

using namespace weft_test;

namespace {

void check_threads(const std::string& name) {
  const auto network = std::make_shared<testing::SlowNetwork>();
  const auto delay = [&](const Communicator& communicator, std::shared_ptr<testing::RankClock> clock) {
    return testing::delay_messages(communicator, network, std::move(clock));
  };
  const int code =
      run<comm::Threads>(RunOptions{.ranks = 4}, [&](World& world) { check_makespans(world, delay, *network, name); });
  CHECK(code == 0);
}

}  // namespace

TEST_CASE_TEMPLATE("with a delay in every message the makespan is that of the simulation", S, WEFT_TEST_SCHEDULES) {
  check_threads(std::string(S::name));
}

TEST_CASE("a simulated message takes time between ranks and none on one rank") {
  const schedule::Table line = schedule::table<schedule::OneForwardOneBackward>(3, 1);
  CHECK(schedule::simulate(line, {1, 1, 1}, 0.5).makespan == 3 * 1 + 3 * 2 + 4 * 0.5);
  const schedule::Table turn = schedule::table<schedule::Zbv>(2, 4);  // its stages 1 and 2 are on one rank
  const schedule::Timeline without = schedule::simulate(turn), with = schedule::simulate(turn, {}, 0.25);
  CHECK(with.start[1][0] == without.start[1][0] + 0.25);
  std::size_t second = 0;
  while (turn.orders[1][second].chunk != 1) ++second;
  CHECK(with.start[1][second] - with.end[1][0] == without.start[1][second] - without.end[1][0]);
  CHECK(with.makespan > without.makespan);
}
