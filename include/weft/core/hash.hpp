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

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace weft::detail

#ifndef WEFT_COMPILED
#include <weft/core/hash_impl.hpp>
#endif
