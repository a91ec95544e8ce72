// SPDX-License-Identifier: Apache-2.0
// Hashes that ranks compare: the same for the same bytes on every rank, others for any change of a bit, the length or the order.
#include <weft/core/hash.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace weft::detail;

TEST_CASE("bytes: every length has a hash of its own, every changed bit is seen, wherever the bytes lie") {
  std::set<std::uint64_t> seen;
  const std::vector<char> memory(200, 'x');
  for (std::size_t length = 0; length <= 130; ++length) seen.insert(hash_bytes(memory.data(), length));
  CHECK(seen.size() == 131);
  for (std::size_t bit = 0; bit < 130 * 8; ++bit) {
    std::vector<char> other(memory.begin(), memory.begin() + 130);
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ 1 << bit % 8);
    CHECK(hash_bytes(other.data(), other.size()) != hash_bytes(memory.data(), 130));
  }
  const std::string text = "the same text, long enough for two rounds of eight words of eight bytes each, at two addresses.";
  const std::string moved = "?" + text;
  CHECK(hash_bytes(text.data(), text.size()) == hash_bytes(moved.data() + 1, text.size()));
}

TEST_CASE("bytes: a seed and zeros at the end count") {
  const char zeros[3] = {};
  CHECK(hash_bytes(zeros, 1) != hash_bytes(zeros, 2));
  CHECK(hash_bytes(zeros, 2, 1) != hash_bytes(zeros, 2, 2));
}

TEST_CASE("words: their order counts, and the compiler's hash is the program's") {
  constexpr std::uint64_t compiled = hash_of(hash_of(0, 1), 2);
  std::uint64_t one = 1, two = 2;
  CHECK(hash_of(hash_of(0, one), two) == compiled);
  CHECK(hash_of(hash_of(0, two), one) != compiled);
}
