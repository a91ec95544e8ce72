// SPDX-License-Identifier: Apache-2.0
// Owner, Maybe and new_shared: what they hold is ended once, when they let go of it.
#include <weft/core/owner.hpp>

#include <memory>
#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace weft::detail;

namespace {
struct Counted {
  explicit Counted(int& alive, int number = 0) : alive_(&alive), value(number) { ++alive; }
  Counted(const Counted& other) : alive_(other.alive_), value(other.value) { ++*alive_; }
  ~Counted() { --*alive_; }
  int* alive_;
  int value;
};
}  // namespace

TEST_CASE("an Owner ends its object once, and hands it on") {
  int alive = 0;
  {
    Owner<Counted> first(new Counted(alive, 7)), second;
    CHECK(first->value == 7);
    CHECK_FALSE(second);
    second = std::move(first);
    CHECK_FALSE(first);
    CHECK((*second).value == 7);
    second.reset(new Counted(alive, 8));
    CHECK(alive == 1);
    Counted* released = second.release();
    CHECK_FALSE(second);
    CHECK(released->value == 8);
    delete released;
  }
  CHECK(alive == 0);
}

TEST_CASE("a Maybe holds one or none") {
  int alive = 0;
  {
    Maybe<Counted> none, one(Counted(alive, 3));
    CHECK_FALSE(none.has_value());
    CHECK(alive == 1);
    none = one;
    CHECK(none->value == 3);
    CHECK(alive == 2);
    none.emplace(alive, 4);
    CHECK((*none).value == 4);
    CHECK(alive == 2);
    none.reset();
    CHECK_FALSE(none);
    one = none;
    CHECK_FALSE(one);
    CHECK(alive == 0);
  }
  CHECK(alive == 0);
}

TEST_CASE("new_shared makes what the last holder ends") {
  int alive = 0;
  std::shared_ptr<const Counted> other;
  {
    const auto shared = new_shared<const Counted>(alive, 5);
    other = shared;
    CHECK(other->value == 5);
  }
  CHECK(alive == 1);
  other.reset();
  CHECK(alive == 0);
}
