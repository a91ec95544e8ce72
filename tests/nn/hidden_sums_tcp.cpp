// SPDX-License-Identifier: Apache-2.0
// covers: weft/testing/delay_process_messages.hpp
// A step of processes connected by TCP whose sums and gathers go in pieces hides at least 80 % of the time that its messages are
// in transit.

#include "nn/hidden_sums_support.hpp"

#include <weft/comm/tcp.hpp>
#include <weft/testing/delay_process_messages.hpp>

using namespace weft_test;

namespace {

template <class Model>
void check(const char* what, int messages) {
  const auto network = std::make_shared<testing::SlowNetwork>();
  const auto delay = [&](const Communicator& communicator, hidden::Clock clock) {
    return testing::delay_process_messages(communicator, network, std::move(clock));
  };
  const int code = run<comm::Tcp>(
      RunOptions{}, [&](World& world) { hidden::check_hidden(what, messages, hidden::measured<Model>(world, delay, *network)); });
  CHECK(code == 0);
}

}  // namespace

TEST_CASE("between processes, sums in pieces hide 80 % of the delays of a step's messages") {
  check<hidden::Tensors>("tensor ranks", 2);
}
TEST_CASE("between processes, gathers and sums in pieces hide 80 % of them under sequence parallelism") {
  check<hidden::Sequences>("sequence parallelism", 4);
}
