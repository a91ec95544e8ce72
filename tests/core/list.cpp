// SPDX-License-Identifier: Apache-2.0
// List beside std::vector, through random calls; elements are ended as often as they are made.
#include <weft/core/list.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using weft::detail::List;

namespace {
bool equal(const List<std::string>& list, const std::vector<std::string>& vector) {
  return list.size() == vector.size() && std::equal(list.begin(), list.end(), vector.begin());
}
}  // namespace

TEST_CASE("a list does what a vector does") {
  std::mt19937 random(1);
  List<std::string> list;
  std::vector<std::string> vector;
  for (int step = 0; step < 2000; ++step) {
    const std::string word(random() % 40, char('a' + random() % 26));
    const std::size_t at = vector.empty() ? 0 : random() % vector.size();
    switch (random() % 9) {
      case 0: list.push_back(word), vector.push_back(word); break;
      case 1: list.emplace_back("xyz"), vector.emplace_back("xyz"); break;
      case 2:
        if (!vector.empty()) list.push_back(list[at]), vector.push_back(std::string(vector[at]));  // one of its own
        break;
      case 3:
        if (!vector.empty()) list.erase(list.begin() + at), vector.erase(vector.begin() + long(at));
        break;
      case 4:
        if (!vector.empty()) list.pop_back(), vector.pop_back();
        break;
      case 5: list.resize(at + 2), vector.resize(at + 2); break;
      case 6: {
        List<std::string> copy = list;
        list = std::move(copy);
        break;
      }
      case 7: erase_if(list, [&](const auto& one) { return one == word; }), std::erase(vector, word); break;
      default: list.append(&word, &word + 1), vector.push_back(word);
    }
    REQUIRE(equal(list, vector));
    CHECK(contains(list, word) == (std::find(vector.begin(), vector.end(), word) != vector.end()));
  }
  list.assign(3, "y");
  CHECK(equal(list, {"y", "y", "y"}));
  list.clear();
  CHECK(list.empty());
}

TEST_CASE("elements that can only be moved are moved, and each is ended once") {
  const auto counted = std::make_shared<int>(0);
  {
    List<std::pair<std::unique_ptr<int>, std::shared_ptr<int>>> list;
    for (int i = 0; i < 20; ++i) list.emplace_back(std::make_unique<int>(i), counted);
    CHECK(counted.use_count() == 21);
    list.erase(list.begin());
    CHECK(counted.use_count() == 20);
    CHECK(*list.front().first == 1);
    auto taken = std::move(list);
    CHECK(list.empty());
    CHECK(taken.size() == 19);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("a short list is sorted, and what compares alike keeps its order") {
  List<std::pair<int, int>> list;
  for (int i = 0; i < 12; ++i) list.push_back({i * 5 % 4, i});
  auto expected = std::vector(list.begin(), list.end());
  const auto less = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(expected.begin(), expected.end(), less);
  sort_short(list, less);
  CHECK(std::equal(list.begin(), list.end(), expected.begin(), expected.end()));
}
