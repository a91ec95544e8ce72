// SPDX-License-Identifier: Apache-2.0
// covers: weft/core/checked.hpp
#include <weft/core/checked.hpp>
#include <weft/core/error.hpp>

#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

TEST_CASE("each error has its exit code, and its text names weft once") {
  CHECK(weft::Error("a").exit_code() == 1);
  CHECK(weft::UsageError("a").exit_code() == 2);
  CHECK(weft::LayoutError("a").exit_code() == 2);
  CHECK(weft::DivergedError("a").exit_code() == 3);
  CHECK(std::string(weft::LayoutError("heads(6) % tp(4) != 0").what()) == "weft: heads(6) % tp(4) != 0");
}

TEST_CASE("narrow returns a number that fits and names one that does not") {
  CHECK(weft::detail::narrow<int>(std::size_t{2147483647}) == 2147483647);
  CHECK_THROWS_WITH_AS(weft::detail::narrow<int>(std::size_t{2147483648}, "the count of all_reduce"),
                       "weft: the count of all_reduce 2147483648 does not fit into 4 bytes", weft::Error);
  CHECK_THROWS_AS(weft::detail::narrow<std::size_t>(-1), weft::Error);
  CHECK_THROWS_AS(weft::detail::narrow<std::uint8_t>(256), weft::Error);
}

TEST_CASE("checked_multiply refuses to wrap") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(weft::detail::checked_multiply(most, 1) == most);
  CHECK(weft::detail::checked_multiply(0, most) == 0);
  CHECK_THROWS_WITH_AS(weft::detail::checked_multiply(most, 2, "the size of wte"),
                       "weft: the size of wte overflows: 18446744073709551615 * 2", weft::Error);
}
