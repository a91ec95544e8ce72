// SPDX-License-Identifier: Apache-2.0
// The order of an IntrusiveList, whatever is removed from it, against a std::vector.
#include <weft/comm/intrusive_list.hpp>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace {

struct Item {
  Item* next = nullptr;
};

}  // namespace

TEST_CASE("objects stay in the order in which they were added, until they are removed") {
  std::array<Item, 8> items;
  weft::comm::IntrusiveList<Item, &Item::next> list;
  std::vector<Item*> expected;
  std::mt19937 random(3);
  for (int turn = 0; turn < 1000; ++turn) {
    Item* const item = &items[random() % items.size()];
    const auto at = std::find(expected.begin(), expected.end(), item);
    if (at == expected.end() && random() % 2 == 0) {
      list.append(*item);
      expected.push_back(item);
    } else {
      list.remove(*item);  // has no effect for an item outside of the list
      if (at != expected.end()) expected.erase(at);
    }
    std::vector<Item*> found;
    for (Item* one = list.first(); one != nullptr; one = one->next) found.push_back(one);
    CHECK(found == expected);
  }
}
