// SPDX-License-Identifier: Apache-2.0
// A system call that a signal interrupts is repeated; another error ends it.
#include <weft/core/uninterrupted.hpp>

#include <cerrno>

#include <doctest/doctest.h>

using weft::detail::uninterrupted;
using weft::detail::uninterrupted_error;

TEST_CASE("a call that sets errno") {
  int calls = 0;
  CHECK(uninterrupted([&] { return ++calls < 4 ? (errno = EINTR, -1) : 7; }) == 7);
  CHECK(calls == 4);
  calls = 0;
  CHECK(uninterrupted([&] { return ++calls, errno = ENOSPC, -1; }) == -1);
  CHECK(calls == 1);
  errno = EINTR;  // of an earlier call
  CHECK(uninterrupted([] { return 0; }) == 0);
}

TEST_CASE("a call that returns its error") {
  int calls = 0;
  CHECK(uninterrupted_error([&] { return ++calls < 4 ? EINTR : 0; }) == 0);
  CHECK(calls == 4);
  CHECK(uninterrupted_error([] { return ENOSPC; }) == ENOSPC);
}
