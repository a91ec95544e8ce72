// SPDX-License-Identifier: Apache-2.0
// covers: weft/nn/summed_product.hpp weft/tensor/add.hpp weft/tensor/gather_in_pieces.hpp weft/testing/delay_messages.hpp
// A step of thread ranks whose sums and gathers go in pieces hides at least 80 % of the time that its messages are in transit.

#include "nn/hidden_sums_support.hpp"

#include <weft/comm/threads.hpp>
#include <weft/nn/summed_product.hpp>
#include <weft/tensor/add.hpp>
#include <weft/tensor/gather_in_pieces.hpp>
#include <weft/testing/delay_messages.hpp>

using namespace weft_test;

namespace {

template <class Model>
hidden::Seconds on_threads() {
  hidden::Seconds result;
  const auto network = std::make_shared<testing::SlowNetwork>();
  const int code = run<comm::Threads>(RunOptions{.ranks = 2}, [&](World& world) {
    const auto delay = [&](const Communicator& communicator, hidden::Clock clock) {
      return testing::delay_messages(communicator, network, std::move(clock));
    };
    const hidden::Seconds seconds = hidden::measured<Model>(world, delay, *network);
    if (world.rank() == 0) result = seconds;
  });
  CHECK(code == 0);
  return result;
}

}  // namespace

TEST_CASE("sums in pieces hide 80 % of the delays of a step's messages") {
  hidden::check_hidden("tensor ranks", 2, on_threads<hidden::Tensors>());  // a sum in forward and one in backward
}
TEST_CASE("gathers and sums in pieces hide 80 % of the delays of a step's messages under sequence parallelism") {
  hidden::check_hidden("sequence parallelism", 4, on_threads<hidden::Sequences>());
}
