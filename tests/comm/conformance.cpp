// SPDX-License-Identifier: Apache-2.0
// Every operation on every type between thread ranks, and in the group of one.
#include <doctest/doctest.h>

#include <weft/comm/threads.hpp>

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
