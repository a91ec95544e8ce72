// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lanes of the hash. Definitions for core/hash.hpp.

#include <weft/core/hash.hpp>
#include <weft/core/inline.hpp>

namespace weft::detail {

WEFT_OUT_OF_LINE WEFT_INLINE std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  const char* at = static_cast<const char*>(data);
  std::uint64_t lanes[8], words[8];
  for (std::uint64_t j = 0; j < 8; ++j) lanes[j] = seed + (j + 1) * hash_factor;
  // Unrolled by hand, since not every compiler unrolls it.
  const auto take = [&lanes, &words] {
    lanes[0] = hash_step(lanes[0], words[0]), lanes[1] = hash_step(lanes[1], words[1]), lanes[2] = hash_step(lanes[2], words[2]),
    lanes[3] = hash_step(lanes[3], words[3]);
    lanes[4] = hash_step(lanes[4], words[4]), lanes[5] = hash_step(lanes[5], words[5]), lanes[6] = hash_step(lanes[6], words[6]),
    lanes[7] = hash_step(lanes[7], words[7]);
  };
  std::size_t left = bytes;
  for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
    std::memcpy(words, at, sizeof words);
    take();
  }
  if (left != 0) {
    std::memset(words, 0, sizeof words);
    std::memcpy(words, at, left);
    take();
  }
  std::uint64_t all = bytes;
  for (const std::uint64_t lane : lanes) all = hash_step(all, lane);
  return hash_end(all);
}

}  // namespace weft::detail
