// SPDX-License-Identifier: Apache-2.0
#include <weft/core/philox.hpp>

#include <cmath>
#include <set>
#include <string>

#include <doctest/doctest.h>

using weft::Philox;

TEST_CASE("Philox4x32-10 gives Random123's known answers") {
  const auto equals = [](Philox::Words w, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    return w.word[0] == a && w.word[1] == b && w.word[2] == c && w.word[3] == d;
  };
  CHECK(equals(Philox::draw(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  CHECK(equals(Philox::draw(~0ull, ~0ull, ~0ull), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  CHECK(equals(Philox::draw(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09, 0x94fdcceb, 0x5001e420,
               0x24126ea1));
}

TEST_CASE("four numbers come from one draw") {
  for (std::uint64_t i = 0; i < 64; ++i) CHECK(Philox::at(7, i) == Philox::draw(7, i / 4).word[i % 4]);
}

TEST_CASE("uniform and normal numbers have their moments") {
  constexpr int count = 200000;
  double mean = 0, square = 0, normal_mean = 0, normal_square = 0, normal_fourth = 0;
  for (int i = 0; i < count; ++i) {
    const double u = Philox::uniform(11, static_cast<std::uint64_t>(i)), z = Philox::normal(11, static_cast<std::uint64_t>(i));
    REQUIRE((u >= 0 && u < 1));
    mean += u / count;
    square += u * u / count;
    normal_mean += z / count;
    normal_square += z * z / count;
    normal_fourth += z * z * z * z / count;
  }
  // Five standard errors each.
  CHECK(std::abs(mean - 0.5) < 5 * std::sqrt(1.0 / 12 / count));
  CHECK(std::abs(square - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / count));
  CHECK(std::abs(normal_mean) < 5 / std::sqrt(count));
  CHECK(std::abs(normal_square - 1) < 5 * std::sqrt(2.0 / count));
  CHECK(std::abs(normal_fourth - 3) < 5 * std::sqrt(96.0 / count));
}

TEST_CASE("keys and sites differ where one number does") {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (std::uint64_t step = 0; step < 20; ++step)
      for (const char* name : {"transformer.wte", "transformer.wpe"}) keys.insert(weft::key_of(seed, weft::site_of(name), step));
  CHECK(keys.size() == 800);
  CHECK(weft::key_of(1, 2) != weft::key_of(2, 1));
  static_assert(weft::site_of("") == 14695981039346656037ull);  // FNV-1a's offset basis
  static_assert(weft::site_of("a") == 0xaf63dc4c8601ec8cull);   // and a published answer
}
