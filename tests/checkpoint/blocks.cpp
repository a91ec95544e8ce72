// SPDX-License-Identifier: Apache-2.0
// covers: weft/checkpoint/checksum.hpp weft/checkpoint/pages.hpp
// Blocks of a tensor: the check that they hold each element once agrees with a count of every element, and takes constant time
// for regular blocks.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <weft/checkpoint/blocks.hpp>
#include <weft/checkpoint/checksum.hpp>
#include <weft/checkpoint/pages.hpp>

using namespace weft::checkpoint::detail;

namespace {

bool counted(const std::vector<Strided>& blocks, std::uint64_t elements) {
  std::vector<int> times(elements);
  for (const Strided& block : blocks)
    for (std::uint64_t i = 0; i < block.runs; ++i)
      for (std::uint64_t k = 0; k < block.run; ++k) {
        const std::uint64_t at = block.begin_of(i) + k;
        if (at >= elements || ++times[at] > 1) return false;
      }
  for (const int n : times)
    if (n != 1) return false;
  return true;
}

}  // namespace

TEST_CASE("blocks cover a tensor if each element is counted once") {
  std::mt19937 engine(7);
  int once = 0, wrong = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    // Rows cut at some columns; each column cut at some rows, or divided into two of twice the stride; sometimes one number is
    // wrong.
    const std::uint64_t rows = 1 + engine() % 12, width = 1 + engine() % 9;
    std::vector<Strided> blocks;
    for (std::uint64_t column = 0; column < width;) {
      const std::uint64_t wide = 1 + engine() % (width - column);
      if (engine() % 6 == 0 && rows % 2 == 0) {
        for (std::uint64_t odd : {0, 1}) blocks.push_back({odd * width + column, wide, rows / 2, 2 * width});
      } else {
        for (std::uint64_t row = 0; row < rows;) {
          const std::uint64_t high = engine() % 2 ? rows - row : 1 + engine() % (rows - row);
          blocks.push_back({row * width + column, wide, high, width});
          row += high;
        }
      }
      column += wide;
    }
    if (engine() % 3 == 0) {
      Strided& block = blocks[engine() % blocks.size()];
      std::uint64_t& number = engine() % 2 ? block.first : engine() % 2 ? block.runs : block.stride;
      number += 1 - 2 * std::uint64_t(number > 1 && engine() % 2);
    }
    std::shuffle(blocks.begin(), blocks.end(), engine);
    const bool expected = counted(blocks, rows * width);
    (expected ? once : wrong)++;
    CHECK((cover(blocks, rows * width) == Cover::once) == expected);
  }
  CHECK(once > 5000);
  CHECK(wrong > 2000);
}

TEST_CASE("a hostile number of runs takes no time") {
  const std::uint64_t elements = std::uint64_t(1) << 42;
  const auto start = std::chrono::steady_clock::now();
  CHECK(cover({{0, 1, elements / 2, 2}, {1, 1, elements / 2, 2}}, elements) == Cover::once);
  CHECK(cover({{0, 1, elements, 1}}, elements) == Cover::once);
  CHECK(cover({{0, 1, elements / 2, 2}, {1, 1, elements / 2 - 1, 2}}, elements) == Cover::wrong);
  // Strides of no one period: each run is looked at, up to a limit.
  CHECK(cover({{0, 1, elements / 2, 2}, {1, 1, elements / 4, 4}, {3, 1, elements / 4, 4}}, elements, 1 << 20) ==
        Cover::too_many_runs);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

TEST_CASE("a checksum is that of xxhsum -H3, for bytes in one piece and in several") {
  const std::vector<unsigned char> bytes(1000, 7);
  Checksum none, pieces;
  CHECK(hex(none.value()) == "2d06800538d394c2");
  pieces.add(bytes.data(), 0);
  pieces.add(bytes.data(), 123);
  pieces.add(bytes.data() + 123, bytes.size() - 123);
  CHECK(pieces.value() == checksum_of(bytes.data(), bytes.size()));
  CHECK(pieces.value() != checksum_of(bytes.data(), bytes.size() - 1));
  std::uint64_t read = 0;
  REQUIRE(from_hex(hex(pieces.value()), read));
  CHECK(read == pieces.value());
  for (const char* wrong : {"2d06800538d394c", "2d06800538d394c22", "2D06800538d394c2", "2d06800538d394g2"})
    CHECK_FALSE(from_hex(wrong, read));
}

TEST_CASE("pages have room for a part, and one owner") {
  for (const std::size_t bytes : {std::size_t(0), std::size_t(1000), std::size_t(9) << 20}) {
    Pages pages(bytes);
    REQUIRE(pages.bytes() > bytes);
    pages.data()[bytes] = std::byte(5);
    std::byte* const memory = pages.data();
    Pages moved = std::move(pages);
    CHECK(moved.data() == memory);
    CHECK(moved.data()[bytes] == std::byte(5));
    CHECK(pages.data() == nullptr);
  }
}
