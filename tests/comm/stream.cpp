// SPDX-License-Identifier: Apache-2.0
// covers: weft/comm/shared_memory/stream.hpp
// Copies past the caches, at every alignment.
#include <weft/comm/shared_memory/stream.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

TEST_CASE("a streamed copy has every byte, at every alignment and length, and touches nothing else") {
  constexpr std::size_t margin = 128;
  std::vector<unsigned char> from(1024), expected, to;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(1 + i % 255);
  for (std::size_t shift = 0; shift < 64; ++shift)
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 191, 500, 640}) {
      to.assign(2 * margin + 1024, 0);
      expected = to;
      std::copy_n(from.begin() + std::ptrdiff_t(shift % 7), bytes, expected.begin() + std::ptrdiff_t(margin + shift));
      weft::comm::shared_memory::streaming_copy(to.data() + margin + shift, from.data() + shift % 7, bytes);
      CHECK_MESSAGE(to == expected, shift, " ", bytes);
    }
}
