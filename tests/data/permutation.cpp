// SPDX-License-Identifier: Apache-2.0
// Permutation: each sample once, in an order that seed and epoch choose, and every order of a few samples about equally often.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include <weft/data/permutation.hpp>

using namespace weft;

static_assert(data::Permutation(1, 2, 1)(0) == 0);
static_assert(data::Permutation(1, 2, 100)(7) == data::Permutation(1, 2, 100)(7));

TEST_CASE("each sample once, whatever the size") {
  for (std::uint64_t size = 1; size < 300; ++size)
    for (const std::uint64_t seed : {0, 1}) {
      const data::Permutation order(seed, 3, size);
      std::vector<int> seen(size, 0);
      for (std::uint64_t place = 0; place < size; ++place) {
        REQUIRE(order(place) < size);
        ++seen[order(place)];
      }
      REQUIRE(seen == std::vector<int>(size, 1));
    }
  const std::uint64_t large = 60'000;
  const data::Permutation order(1, 0, large);
  std::vector<bool> seen(large, false);
  for (std::uint64_t place = 0; place < large; ++place) {
    REQUIRE(!seen[order(place)]);
    seen[order(place)] = true;
  }
  const data::Permutation vast(1, 0, (std::uint64_t(1) << 40) + 1);
  CHECK(vast(0) != vast(std::uint64_t(1) << 40));
  CHECK(vast(std::uint64_t(1) << 40) <= std::uint64_t(1) << 40);
}

TEST_CASE("every order of three and four samples comes about equally often") {
  for (const std::uint64_t size : {2, 3, 4}) {
    std::map<std::vector<std::uint64_t>, double> times;
    const int epochs = 24'000;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      std::vector<std::uint64_t> order(size);
      for (std::uint64_t place = 0; place < size; ++place) order[place] = data::Permutation(5, std::uint64_t(epoch), size)(place);
      ++times[order];
    }
    const double orders = size == 2 ? 2 : size == 3 ? 6 : 24, expected = epochs / orders;
    CHECK(double(times.size()) == orders);
    for (const auto& [order, count] : times) CHECK(std::abs(count - expected) < 6 * std::sqrt(expected));
  }
}

TEST_CASE("a sample's position, and the one after it, are about uniform over epochs") {
  const std::uint64_t size = 37;
  std::vector<double> place_of_0(size, 0), behind_0(size, 0);
  const int epochs = 20'000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const data::Permutation order(1, std::uint64_t(epoch), size);
    for (std::uint64_t place = 0; place < size; ++place)
      if (order(place) == 0) {
        ++place_of_0[place];
        ++behind_0[order((place + 1) % size)];
      }
  }
  const double expected = double(epochs) / double(size);
  for (std::uint64_t i = 0; i < size; ++i) {
    CHECK(std::abs(place_of_0[i] - expected) < 6 * std::sqrt(expected));
    if (i > 0) CHECK(std::abs(behind_0[i] - expected * double(size) / double(size - 1)) < 6 * std::sqrt(expected));
  }
  CHECK(behind_0[0] == 0);
}

TEST_CASE("seeds and epochs have orders of their own") {
  const auto fixed = [](std::uint64_t seed, std::uint64_t epoch) {
    int same = 0;
    for (std::uint64_t place = 0; place < 1000; ++place)
      same += data::Permutation(1, 0, 1000)(place) == data::Permutation(seed, epoch, 1000)(place);
    return same;
  };
  CHECK(fixed(1, 0) == 1000);
  CHECK(fixed(1, 1) < 10);
  CHECK(fixed(2, 0) < 10);
}
