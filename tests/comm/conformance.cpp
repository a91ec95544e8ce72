// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/communicator.hpp weft/comm/calls.hpp weft/comm/contiguous.hpp weft/comm/group.hpp weft/comm/operation.hpp
// covers: weft/comm/request.hpp weft/comm/reduce.hpp weft/comm/threads.hpp weft/comm/threads/exchange.hpp
// covers: weft/comm/threads/group.hpp weft/comm/threads/mailbox.hpp weft/comm/threads/world.hpp
// Every operation on every type between thread ranks, and in the group of one.
#include <doctest/doctest.h>

#include <weft/comm/calls.hpp>
#include <weft/comm/communicator.hpp>
#include <weft/comm/contiguous.hpp>
#include <weft/comm/group.hpp>
#include <weft/comm/operation.hpp>
#include <weft/comm/reduce.hpp>
#include <weft/comm/request.hpp>
#include <weft/comm/threads.hpp>
#include <weft/comm/threads/exchange.hpp>
#include <weft/comm/threads/group.hpp>
#include <weft/comm/threads/mailbox.hpp>
#include <weft/comm/threads/world.hpp>

#include "comm/conformance.hpp"

TEST_CASE("thread ranks: every operation, type and count") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    CHECK_NOTHROW(weft::comm::run_threads(
        ranks, [](const weft::Communicator& c) { weft_test::check_everything(c); }, std::chrono::seconds(60)));
  }
}

TEST_CASE("a default-constructed communicator is a group of one") {
  const weft::Communicator c;
  CHECK(c.rank() == 0);
  CHECK(c.size() == 1);
  CHECK_NOTHROW(weft_test::check_everything(c));
}
