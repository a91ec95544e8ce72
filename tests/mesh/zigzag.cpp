// SPDX-License-Identifier: Apache-2.0
// Zig-zag parts of a sequence: each token is on one rank, and all ranks have the same work under a causal mask.
#include <weft/mesh/zigzag.hpp>

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <doctest/doctest.h>

using weft::detail::Zigzag;

TEST_CASE("each token is on one rank, in order, and ranks have the same number of keys before their tokens") {
  for (const std::size_t ranks : {1, 2, 3, 4}) {
    const std::size_t length = 24;
    std::vector<std::size_t> owners(length), work(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Zigzag part{length, ranks, rank};
      for (std::size_t i = 0; i < part.local(); ++i) {
        ++owners[part.position(i)];
        work[rank] += part.position(i);
        CHECK(part.before(part.position(i)) == i);
        CHECK(part.row(part.local() + i) == length + part.position(i));
      }
    }
    CHECK(owners == std::vector<std::size_t>(length, 1));
    CHECK(work == std::vector<std::size_t>(ranks, work[0]));
  }
}

TEST_CASE("a rank takes its part of each sequence") {
  std::vector<int> all(16), mine;
  std::iota(all.begin(), all.end(), 0);
  Zigzag{8, 2, 1}.take(std::span<const int>(all), mine);
  CHECK(mine == std::vector<int>{2, 3, 4, 5, 10, 11, 12, 13});
}

TEST_CASE("a sequence that does not divide into chunks is refused") {
  CHECK_NOTHROW(Zigzag{12, 3, 0}.require());
  CHECK_NOTHROW(Zigzag{7, 1, 0}.require());
  CHECK_THROWS_WITH_AS((Zigzag{14, 3, 0}.require()), doctest::Contains("sequence(14) % (2 * cp(3)) != 0"), weft::ShapeError);
  CHECK_THROWS_WITH_AS((Zigzag{14, 3, 0}.require()), doctest::Contains("sequence can be 12 or 18"), weft::ShapeError);
}
