// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/gather_lists.hpp
// The start settings of a run's ranks are compared, and all ranks name a difference.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/comm/agree.hpp>
#include <weft/comm/gather_lists.hpp>
#include <weft/comm/rehearsal.hpp>
#include <weft/comm/threads.hpp>

using namespace weft;

namespace {

/// The error of every rank, which must be the same on all; empty if there was none.
std::string error_of(
    int ranks, const std::function<std::vector<NamedValue>(int)>& values,
    const std::function<void(const Communicator&, const std::vector<NamedValue>&)>& compare =
        [](const Communicator& c, const std::vector<NamedValue>& mine) { agree(c, mine); }) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  comm::run_threads(ranks, [&](const Communicator& c) {
    try {
      compare(c, values(c.rank()));
    } catch (const UsageError& error) {
      errors[std::size_t(c.rank())] = error.what();
    }
  });
  for (const std::string& error : errors) CHECK(error == errors[0]);
  return errors[0];
}

}  // namespace

TEST_CASE("ranks that were started alike agree") {
  const auto values = [](int) {
    return std::vector<NamedValue>{{"--seed", 1}, {"--lr", 1e-3}, {"--json", true}, {"--dp", std::optional<int>()}};
  };
  CHECK(error_of(1, values).empty());
  CHECK(error_of(3, values).empty());
  CHECK(error_of(2, [](int) { return std::vector<NamedValue>(); }).empty());
}

TEST_CASE("the option that differs is named, with both ranks and both values") {
  CHECK(error_of(3,
                 [](int rank) {
                   return std::vector<NamedValue>{{"--steps", 600}, {"--seed", rank == 2 ? 2 : 1}};
                 }) ==
        "weft: ranks disagree about --seed: rank 0 has 1, rank 2 has 2: all ranks of a run are started with the same options "
        "and data");
  CHECK(error_of(2, [](int rank) {
          return std::vector<NamedValue>{{"--lr", rank == 0 ? 0.1 : 0.1 + 1e-17 + 2e-17}};
        }).find("0.10000000000000003") != std::string::npos);
  CHECK(error_of(2, [](int rank) {
          return std::vector<NamedValue>{{"--dp", rank == 0 ? std::optional(2) : std::nullopt}};
        }).find("about --dp: rank 0 has 2, rank 1 has not given") != std::string::npos);
  CHECK(error_of(2, [](int rank) {
          return std::vector<NamedValue>{{"data", digest(std::vector<int>{1, 2, 3 + rank})}};
        }).find("about data: rank 0 has 12 bytes, ") != std::string::npos);
  CHECK(error_of(2, [](int rank) {
          return std::vector<NamedValue>{{"--data", std::vector<std::string>{"a", rank == 0 ? "b" : "c"}}};
        }).find("rank 0 has a b, rank 1 has a c") != std::string::npos);
}

TEST_CASE("another version of weft is no option: the remedy is one program") {
  const auto builds = [](int rank) {
    auto build = weft::detail::of_this_build();
    if (rank == 1) build[0].value = "9.9.9";
    return build;
  };
  const std::string text = error_of(
      2, builds, [](const Communicator& c, const std::vector<NamedValue>& mine) { agree(c, mine, weft::detail::build_remedy); });
  const std::string own = weft::detail::of_this_build()[0].value;
  CHECK(text == "weft: ranks disagree about the version of weft: rank 0 has " + own +
                    ", rank 1 has 9.9.9: all ranks of a run start the same program, built with one version of weft");
}

TEST_CASE("ranks that compare other names get an error with the names") {
  CHECK(error_of(2, [](int rank) {
          std::vector<NamedValue> values{{"--seed", 1}};
          if (rank == 1) values.push_back({"--steps", 2});
          return values;
        }) == "weft: ranks disagree: rank 1 compares --steps, rank 0 does not: all ranks call agree with the same names");
}

TEST_CASE("an empty value and a value that looks like the next name are values") {
  CHECK(error_of(2, [](int rank) {
          return std::vector<NamedValue>{{"a", rank == 0 ? "" : "b"}, {"c", "d"}};
        }).find("about a: rank 0 has , rank 1 has b") != std::string::npos);
}

TEST_CASE("lists of any lengths arrive whole, in the order of the ranks") {
  for (const int ranks : {1, 2, 4})
    comm::run_threads(ranks, [&](const Communicator& c) {
      for (const std::size_t most : {0u, 1u, 5u}) {
        const auto list_of = [&](int rank) {
          std::vector<std::uint64_t> list;
          for (std::size_t k = 0; k < std::size_t(rank) * most; ++k) list.push_back(100 * std::uint64_t(rank) + k);
          return list;
        };
        const auto mine = list_of(c.rank());
        const auto all = detail::gather_lists(c, std::span<const std::uint64_t>(mine));
        REQUIRE(all.size() == std::size_t(ranks));
        for (int rank = 0; rank < ranks; ++rank) CHECK(all[std::size_t(rank)] == list_of(rank));
      }
    });
  const std::string texts("one\0\0three\0", 11);
  CHECK(detail::split_at_zeros(detail::bytes_of(texts)) == std::vector<std::string_view>{"one", "", "three"});
  CHECK(detail::split_at_zeros(detail::bytes_of("")).empty());
}

TEST_CASE("numbers arrive in the order of the ranks; in a rehearsal all ranks have this rank's") {
  for (const int ranks : {1, 2, 4})
    comm::run_threads(ranks, [&](const Communicator& c) {
      std::vector<std::size_t> expected;
      for (int rank = 0; rank < ranks; ++rank) expected.push_back(7 + 3 * std::size_t(rank));
      CHECK(detail::gather_numbers(c, expected[std::size_t(c.rank())]) == expected);
    });
  Rehearsal notes;
  const Communicator rehearsed(std::make_shared<comm::RehearsedGroup>(1, 3, "dx", notes), comm::rehearsed_order());
  CHECK(detail::gather_numbers(rehearsed, 5) == std::vector<std::size_t>{5, 5, 5});
}
