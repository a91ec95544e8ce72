// SPDX-License-Identifier: Apache-2.0
// The fields of aggregates are counted, visited in order and hashed; fields that cannot be counted have no hash.
#include <weft/core/fields.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace weft::detail;

namespace {

enum class Colour { red, blue };
struct Inner {
  int a = 1;
  double b = 2;
};
struct Outer {
  std::size_t width = 8;
  Colour colour = Colour::red;
  std::string name = "model";
  std::vector<int> sizes = {1, 2};
  std::optional<Inner> inner = {};
  std::array<int, 3> numbers = {};
  Inner nested = {};
};
struct Four {
  int a = 1, b = 2, c = 3, d = 4;
};
struct TwentyFour {
  int f[1] = {}, a1 = 0, a2 = 0, a3 = 0, a4 = 0, a5 = 0, a6 = 0, a7 = 0, a8 = 0, a9 = 0, a10 = 0, a11 = 0, a12 = 0, a13 = 0,
      a14 = 0, a15 = 0, a16 = 0, a17 = 0, a18 = 0, a19 = 0, a20 = 0, a21 = 0, a22 = 0, a23 = 23;
};
struct TwentyFive : TwentyFour {};
struct Private {
  explicit Private(int number) : number_(number) {}
  int number_;
};
struct Pointer {
  const int* address = nullptr;
};

static_assert(field_count<Inner> == 2 && field_count<Outer> == 7 && field_count<Four> == 4 && field_count<TwentyFour> == 24);
static_assert(field_count<TwentyFive> == -1 && field_count<Private> == -1 && field_count<int> == -1);

template <class T>
std::uint64_t hash(const T& value) {
  std::uint64_t state = 0;
  CHECK(hash_value(state, value));
  return state;
}

}  // namespace

TEST_CASE("fields are visited in their order") {
  std::vector<std::size_t> places;
  std::vector<int> values;
  for_each_field(Four{}, [&](std::size_t at, int value) { places.push_back(at), values.push_back(value); });
  CHECK(places == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(values == std::vector{1, 2, 3, 4});
  int last = 0, visited = 0;
  for_each_field(TwentyFour{}, [&](std::size_t, const auto& field) {
    ++visited;
    if constexpr (requires { last = field; }) last = field;
  });
  CHECK(visited == 24);
  CHECK(last == 23);
}

TEST_CASE("a change of any field changes the hash, and the same values give it again") {
  const std::uint64_t whole = hash(Outer{});
  CHECK(hash(Outer{}) == whole);
  std::vector<Outer> changed(8);
  changed[0].width = 9;
  changed[1].colour = Colour::blue;
  changed[2].name = "Model";
  changed[3].sizes = {2, 1};
  changed[4].inner = Inner{};
  changed[5].numbers[2] = 1;
  changed[6].nested.b = 2.5;
  changed[7].sizes = {1, 2, 0};
  for (std::size_t i = 0; i < changed.size(); ++i) {
    INFO("change " << i);
    CHECK(hash(changed[i]) != whole);
    for (std::size_t j = 0; j < i; ++j) CHECK(hash(changed[i]) != hash(changed[j]));
  }
}

TEST_CASE("fields without a hash are left out") {
  std::uint64_t state = 5;
  CHECK_FALSE(hash_value(state, Pointer{}));
  CHECK_FALSE(hash_value(state, Private(1)));
  CHECK(state == 5);
}
