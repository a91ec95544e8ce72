// SPDX-License-Identifier: Apache-2.0
#pragma once
// A 64-bit hash of bytes at memory speed, with which ranks compare values without sending them. Not secure against adversaries:
// eight lanes of rotate, xor and multiply, each a bijection of its word, so two inputs that differ in one word never have the
// same hash.
//
//   detail::hash_bytes(batch.tokens.data(), batch.tokens.size() * sizeof(std::int32_t))

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <weft/core/text.hpp>

namespace weft::detail {

inline constexpr std::uint64_t hash_factor = 0x9E3779B97F4A7C15u;

constexpr std::uint64_t hash_step(std::uint64_t state, std::uint64_t word) { return std::rotl(state ^ word, 29) * hash_factor; }
constexpr std::uint64_t hash_end(std::uint64_t state) {
  state = (state ^ (state >> 32)) * 0xD6E8FEB86659FD93u;
  return state ^ (state >> 29);
}
/// Adds a word to a hash and finishes it.
constexpr std::uint64_t hash_of(std::uint64_t state, std::uint64_t word) { return hash_end(hash_step(state, word)); }

WEFT_OUT_OF_LINE inline std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0) {
  const char* at = static_cast<const char*>(data);
  std::uint64_t lanes[8], words[8];
  for (std::uint64_t j = 0; j < 8; ++j) lanes[j] = seed + (j + 1) * hash_factor;
  // Written out: not every compiler unrolls it where it pays.
  const auto take = [&lanes, &words] {
    lanes[0] = hash_step(lanes[0], words[0]), lanes[1] = hash_step(lanes[1], words[1]), lanes[2] = hash_step(lanes[2], words[2]), lanes[3] = hash_step(lanes[3], words[3]);
    lanes[4] = hash_step(lanes[4], words[4]), lanes[5] = hash_step(lanes[5], words[5]), lanes[6] = hash_step(lanes[6], words[6]), lanes[7] = hash_step(lanes[7], words[7]);
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
